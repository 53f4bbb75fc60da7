"""``pysqlbox doctor``: what is wrong, or soon will be, with the database and the deployment in it."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

import click

from pysqlbox.cli import many
from pysqlbox.cli.many import stores_option
from pysqlbox.cli.options import DURATION, deployment, json_option, schema_option, stopping, url_option
from pysqlbox.cli.output import echo_json, printable, table
from pysqlbox.deployment import Deployment
from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.messages import Finding

__all__ = ["doctor"]

_WORST_FIRST = ("error", "warning", "unknown", "note", "ok")


@click.command()
@url_option
@schema_option
@stores_option
@click.option("--all", "everything", is_flag=True, help="Show the checks too that found nothing.")
@click.option(
    "--watch",
    type=DURATION,
    is_flag=False,
    flag_value="10s",
    help="Look again at this interval, 10 s unless given, until Ctrl-C.",
)
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    url: str | None,
    schema: str,
    stores_name: str | None,
    everything: bool,
    watch: timedelta | None,
    as_json: bool,
) -> None:
    """Look for what is wrong, and say what would mend it. Exit code 1: a warning or an error.

    It changes nothing: the statements that it prints are for you to read and run. What it may not look at is
    unknown. JSON has all rows, as the routine doctor() answers them, on one line. With --watch
    the exit code is that of the last look, 2 if the database could not be asked.

    \b
    Examples:
      pysqlbox doctor
      pysqlbox doctor --all
      pysqlbox doctor --json
      pysqlbox doctor --watch 30s
    """
    if stores_name is not None:
        if watch is not None:
            raise click.UsageError("--watch: must be left out for many stores")
        many.doctor(stores_name, everything, as_json)
        return
    with deployment(url, schema) as db:
        if watch is None:
            code = _tell(db.doctor(), everything, as_json)
        else:
            code = _watch(db, watch, everything, as_json)
    ctx.exit(code)


def _tell(findings: list[Finding], everything: bool, as_json: bool) -> int:
    """Show what was found; the exit code that it means."""
    if as_json:
        echo_json(findings)
    else:
        _show(findings, everything)
    return int(any(each.is_bad for each in findings))


def _watch(db: Deployment, interval: timedelta, everything: bool, as_json: bool) -> int:
    """Look again and again; a database that is away is asked again as well."""
    code = 0
    with stopping() as stop:
        while not stop.is_set():
            try:
                findings = db.doctor()
            except DatabaseUnavailable as error:
                click.echo(f"pysqlbox: {error}; trying again", err=True)
                code = 2
            else:
                if not as_json and sys.stdout.isatty():
                    click.clear()
                code = _tell(findings, everything, as_json)
                if not as_json:
                    seconds = interval.total_seconds()
                    click.echo(f"{datetime.now():%H:%M:%S}, again every {seconds:g} s, Ctrl-C ends it")
            stop.wait(interval.total_seconds())
    return code


def _show(findings: list[Finding], everything: bool) -> None:
    """The worst first, with detail and advice, which are whole; then what is fine, or how much of it."""
    told = sorted(
        (each for each in findings if each.level != "ok"), key=lambda each: _WORST_FIRST.index(each.level)
    )
    for each in told:
        click.echo(f"{each.level:<8} {each.check}: {printable(each.subject)}")
        click.echo(f"         {printable(each.detail)}")
        if each.advice is not None:
            click.echo(f"         > {printable(each.advice)}")
    fine = [each for each in findings if each.level == "ok"]
    if everything:
        if told:
            click.echo()
        rows = [(each.level, each.check, each.subject, each.detail) for each in fine]
        click.echo(table(["level", "check", "subject", "detail"], rows))
    else:
        click.echo(f"{len(fine)} of {len(findings)} rows are ok")
