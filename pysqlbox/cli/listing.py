"""``pysqlbox list``: the messages in one status."""

from __future__ import annotations

import click

from pysqlbox.cli.options import box_option, deployment, json_option, schema_option, url_option
from pysqlbox.cli.output import echo_json, table

__all__ = ["list_messages"]


@click.command("list", short_help="List messages in one status, oldest first.")
@url_option
@schema_option
@box_option
@click.argument("status")
@click.option("--topic", help="Only messages of this topic.")
@click.option("--group", "group_id", help="Only messages of this FIFO group.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@click.option("--after", default=0, type=click.IntRange(0), help="Only ids above this one: the next page.")
@json_option
def list_messages(
    url: str | None,
    schema: str,
    name: str,
    status: str,
    topic: str | None,
    group_id: str | None,
    limit: int,
    after: int,
    as_json: bool,
) -> None:
    """List messages in one STATUS, oldest first, without their payloads.

    An outbox has Ready, InProgress, Done, Failed, Expired and Cancelled; an inbox has Seen, Processing, Done,
    Dead, Expired and Cancelled.

    \b
    Examples:
      pysqlbox list Ready --topic order.created
      pysqlbox list Processing --box inbox --group customer-17
      pysqlbox list Done --limit 100 --after 4711 --json
    """
    with deployment(url, schema) as db:
        found = db.box(name).list(status, topic=topic, limit=limit, after_id=after, group_id=group_id)
    if as_json:
        echo_json(found)
    elif found:
        titles = ["id", "topic", "group", "attempts", "due at (UTC)", "locked until", "error"]
        rows = [
            (
                str(each.id),
                each.topic,
                each.group_id,
                str(each.attempt),
                each.due_at,
                each.locked_until,
                each.last_error,
            )
            for each in found
        ]
        click.echo(table(titles, rows, right=("id", "attempts")))
        if len(found) == limit:
            click.echo(f"more with --after {found[-1].id}", err=True)
    else:
        click.echo("no such messages", err=True)
