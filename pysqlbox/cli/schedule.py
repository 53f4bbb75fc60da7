"""``pysqlbox schedule``: messages that are enqueued again and again."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import click

from pysqlbox.cli.enqueue import headers_of, payload_of
from pysqlbox.cli.options import (
    DURATION,
    MOMENT,
    box_option,
    deployment,
    json_option,
    schema_option,
    url_option,
)
from pysqlbox.cli.output import echo_json, fields_of, moment, printable, table

__all__ = ["schedule"]


@click.group(short_help="Enqueue messages again and again, by cron or every so often.")
def schedule() -> None:
    """Enqueue messages again and again, by a cron text or every so often. A worker of the outbox fires them.

    \b
    Examples:
      pysqlbox schedule set nightly report.daily '{}' --cron "0 3 * * *"
      pysqlbox schedule set noon menu '' --cron "0 12 * * *" --timezone Asia/Tokyo
      pysqlbox schedule set poll prices.poll '' --every 5m
      pysqlbox schedule list
      pysqlbox schedule remove nightly
    """


@schedule.command("set")
@click.argument("schedule_name", metavar="NAME")
@click.argument("topic")
@click.argument("payload", required=False)
@url_option
@schema_option
@box_option
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Where the payload is; - is the standard input.",
)
@click.option("--cron", help="Five fields: minute, hour, day of the month, month, weekday.")
@click.option("--every", type=DURATION, help="In place of --cron: how often.")
@click.option("--timezone", default="UTC", show_default=True, help="The cron text's zone, an IANA name.")
@click.option("--next-at", type=MOMENT, help="The first time, in place of the next one by the rule.")
@click.option(
    "--catch-up",
    type=click.IntRange(0, 10_000),
    default=1,
    show_default=True,
    help="How many missed times are made up for.",
)
@click.option("--disabled", is_flag=True, help="Keep it without firing it.")
@click.option("--group-id", help="Its messages are handled in order.")
@click.option("--priority", type=click.IntRange(-32768, 32767), default=0, help="Higher ones come first.")
@click.option("--header", "pairs", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("--headers", help="All headers as a JSON object.")
@json_option
def set_(
    schedule_name: str,
    topic: str,
    payload: str | None,
    url: str | None,
    schema: str,
    name: str,
    path: Path | None,
    cron: str | None,
    every: timedelta | None,
    timezone: str,
    next_at: datetime | None,
    catch_up: int,
    disabled: bool,
    group_id: str | None,
    priority: int,
    pairs: tuple[str, ...],
    headers: str | None,
    as_json: bool,
) -> None:
    """Set the schedule NAME, or replace it. Without PAYLOAD it is read from --file or the standard input.

    One whose rule stays the same keeps its next time, unless --next-at is given.
    """
    if (cron is None) == (every is None):
        raise click.UsageError("give either --cron or --every")
    with deployment(url, schema) as db:
        made = db.schedules.set(
            schedule_name,
            topic,
            payload_of(payload, path),
            cron=cron,
            every=every,
            timezone=timezone,
            box=name,
            next_at=next_at,
            catch_up=catch_up,
            enabled=not disabled,
            group_id=group_id,
            priority=priority,
            headers=headers_of(headers, pairs),
        )
    if as_json:
        echo_json(fields_of(made))
    elif made.enabled:
        click.echo(f"{printable(made.name)}: next at {moment(made.next_at)} UTC")
    else:
        click.echo(f"{printable(made.name)}: disabled")


@schedule.command("list")
@url_option
@schema_option
@box_option
@json_option
def list_(url: str | None, schema: str, name: str, as_json: bool) -> None:
    """List the schedules of an outbox."""
    with deployment(url, schema) as db:
        found = db.schedules.list(box=name)
    if as_json:
        echo_json([fields_of(each) for each in found])
    elif found:
        titles = ["name", "topic", "rule", "zone", "next at (UTC)", "last fired at (UTC)", "catch up"]
        rows = [
            (
                each.name,
                each.topic,
                each.cron if each.every_seconds is None else f"every {timedelta(seconds=each.every_seconds)}",
                each.timezone,
                (each.next_at or "a worker says") if each.enabled else "disabled",
                each.last_fired_at,
                str(each.catch_up),
            )
            for each in found
        ]
        click.echo(table(titles, rows, right=("catch up",)))
    else:
        click.echo("no schedules", err=True)


@schedule.command()
@click.argument("schedule_name", metavar="NAME")
@url_option
@schema_option
@box_option
@json_option
def remove(schedule_name: str, url: str | None, schema: str, name: str, as_json: bool) -> None:
    """Remove the schedule NAME. What it has enqueued stays."""
    with deployment(url, schema) as db:
        db.schedules.remove(schedule_name, box=name)
    if as_json:
        echo_json({"removed": schedule_name})
    else:
        click.echo(f"removed {printable(schedule_name)}")
