"""The command line: ``pysqlbox --help`` lists the commands."""

from __future__ import annotations

from typing import IO, Any

import click

import pysqlbox
from pysqlbox.cli.bench import bench
from pysqlbox.cli.cancel import cancel
from pysqlbox.cli.dead import dead, replay
from pysqlbox.cli.demo import demo
from pysqlbox.cli.deploy import migrate, render, status
from pysqlbox.cli.doctor import doctor
from pysqlbox.cli.enqueue import enqueue
from pysqlbox.cli.listing import list_messages
from pysqlbox.cli.maintain import cleanup, reap
from pysqlbox.cli.schedule import schedule
from pysqlbox.cli.serve import serve
from pysqlbox.cli.settings import configure, pause, resume
from pysqlbox.cli.stats import stats
from pysqlbox.cli.work import work
from pysqlbox.errors import PysqlboxError

__all__ = ["cli", "main"]


class _Failed(click.ClickException):
    """One of our own errors: one sentence, exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"pysqlbox: {self.message}", file=file, err=file is None)


class _Commands(click.Group):
    """Commands of which whatever goes wrong on the database's side is one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PysqlboxError as error:
            raise _Failed(" ".join(str(error).split())) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pysqlbox.__version__, prog_name="pysqlbox")
def cli() -> None:
    """Transactional outbox, inbox, joins and idempotency ledger inside your database.

    Exit codes: 0 it worked, 1 there was nothing, 2 it failed.
    """


for _command in (
    migrate,
    status,
    render,
    work,
    serve,
    enqueue,
    stats,
    list_messages,
    dead,
    replay,
    cancel,
    pause,
    resume,
    configure,
    schedule,
    reap,
    cleanup,
    doctor,
    demo,
    bench,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line."""
    cli()
