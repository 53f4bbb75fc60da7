"""``pysqlbox doctor``: what is wrong, or soon will be, with the database and the deployment in it."""

from __future__ import annotations

import click

from pysqlbox.cli.options import deployment, json_option, schema_option, url_option
from pysqlbox.cli.output import echo_json, printable, table
from pysqlbox.messages import Finding

__all__ = ["doctor"]

_WORST_FIRST = ("error", "warning", "unknown", "note", "ok")


@click.command()
@url_option
@schema_option
@click.option("--all", "everything", is_flag=True, help="Show the checks too that found nothing.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, url: str | None, schema: str, everything: bool, as_json: bool) -> None:
    """Look for what is wrong, and say what would mend it. Exit code 1: a warning or an error.

    It changes nothing: the statements that it prints are for you to read and run. What it may not look at is
    unknown. JSON has all rows, as the routine doctor() answers them.

    \b
    Examples:
      pysqlbox doctor
      pysqlbox doctor --all
      pysqlbox doctor --json
    """
    with deployment(url, schema) as db:
        findings = db.doctor()
    if as_json:
        echo_json(findings)
    else:
        _show(findings, everything)
    if any(each.is_bad for each in findings):
        ctx.exit(1)


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
