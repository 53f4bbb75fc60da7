"""The command line: ``pysqlbox migrate | status | render | demo``."""

from __future__ import annotations

import sys

import click

import pysqlbox
from pysqlbox.cli.demo import demo
from pysqlbox.cli.deploy import migrate, render, status
from pysqlbox.errors import PysqlboxError

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pysqlbox.__version__, prog_name="pysqlbox")
def cli() -> None:
    """Transactional outbox, inbox, joins and idempotency ledger inside your database."""


cli.add_command(migrate)
cli.add_command(status)
cli.add_command(render)
cli.add_command(demo)


def main() -> None:
    """Run the command line; whatever goes wrong on the database's side is one sentence and exit code 2."""
    try:
        cli()
    except PysqlboxError as error:
        click.echo(f"pysqlbox: {error}", err=True)
        sys.exit(2)
