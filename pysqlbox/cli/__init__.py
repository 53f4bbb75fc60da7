"""The command line: ``pysqlbox --help`` lists the commands."""

from __future__ import annotations

from typing import IO, Any

import click

import pysqlbox
from pysqlbox.cli.bench import bench
from pysqlbox.cli.cancel import cancel
from pysqlbox.cli.completion import completion
from pysqlbox.cli.dead import dead, replay
from pysqlbox.cli.demo import demo
from pysqlbox.cli.deploy import migrate, render, status
from pysqlbox.cli.doctor import doctor
from pysqlbox.cli.enqueue import enqueue
from pysqlbox.cli.listing import list_messages
from pysqlbox.cli.maintain import cleanup, reap
from pysqlbox.cli.many import stores
from pysqlbox.cli.new import new
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
    """Commands in chapters, of which whatever goes wrong on the database's side is one sentence."""

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """The chapters, each command with as much of its help as stands on its line."""
        width = max(map(len, self.commands))
        for title, commands in _CHAPTERS.items():
            with formatter.section(title):
                room = formatter.width - width - 4
                formatter.write_dl(
                    [(f"{command.name:<{width}}", command.get_short_help_str(room)) for command in commands]
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PysqlboxError as error:
            raise _Failed(" ".join(str(error).split())) from error


_CHAPTERS: dict[str, tuple[click.Command, ...]] = {
    "Begin": (migrate, new, work, demo),
    "Send": (enqueue, schedule),
    "Look": (stats, list_messages, doctor, stores, serve),
    "Act": (dead, replay, cancel, pause, resume, configure, reap, cleanup),
    "Deploy": (status, render),
    "Besides": (completion, bench),
}

_FIRST_STEPS = """\
pysqlbox: messages that live in your database and commit with your data. Begin with

  pysqlbox migrate --url URL      deploys it; URL is postgresql://…, mssql://…, or embedded:
                                  for a PostgreSQL of your own (PYSQLBOX_URL stands in for it)
  pysqlbox new jobs               writes jobs.py, a worker module to start from
  pysqlbox work jobs:make_worker  runs it

pysqlbox demo shows a small shop at work; pysqlbox --help lists every command."""


@click.group(
    cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(pysqlbox.__version__, prog_name="pysqlbox")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Transactional outbox, inbox, joins and idempotency ledger inside your database.

    pysqlbox COMMAND --help tells more, most with examples.

    Exit codes: 0 it worked, 1 it found something (status, doctor), 2 it could not.
    """
    if ctx.invoked_subcommand is None:
        click.echo(_FIRST_STEPS)


for _command in (command for commands in _CHAPTERS.values() for command in commands):
    cli.add_command(_command)


def main(arguments: list[str] | None = None, name: str | None = None) -> None:
    """Run the command line, on the process's own arguments and under its name unless others are given."""
    cli(args=arguments, prog_name=name)
