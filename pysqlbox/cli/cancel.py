"""``pysqlbox cancel``: call messages off that are not over yet."""

from __future__ import annotations

import click

from pysqlbox.cli.options import box_option, deployment, json_option, schema_option, url_option
from pysqlbox.cli.output import echo_json

__all__ = ["cancel"]


@click.command()
@url_option
@schema_option
@box_option
@click.argument("ids", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1))
@click.option("--reason", help="Kept as the message's last error.")
@json_option
def cancel(
    url: str | None,
    schema: str,
    name: str,
    ids: tuple[int, ...],
    reason: str | None,
    as_json: bool,
) -> None:
    """Call off messages that are not over yet, waiting or leased.

    They stay among the dead letters as Cancelled, until a replay or a discard.

    \b
    Examples:
      pysqlbox cancel 17 18
      pysqlbox cancel 17 --box orders --reason "order withdrawn"
    """
    with deployment(url, schema) as db:
        affected = db.box(name).cancel(ids, reason=reason)
    if as_json:
        echo_json({"cancelled": affected})
    else:
        click.echo(f"cancelled {affected}")
