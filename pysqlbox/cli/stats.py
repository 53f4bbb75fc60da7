"""``pysqlbox stats``: what waits, runs, was done and died, by topic."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import timedelta

import click

from pysqlbox.cli import many
from pysqlbox.cli.many import stores_option
from pysqlbox.cli.options import (
    DURATION,
    boxes_option,
    deployment,
    json_option,
    schema_option,
    stopping,
    url_option,
)
from pysqlbox.cli.output import age, echo_json, fields_of, table
from pysqlbox.deployment import Deployment
from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.messages import TopicStats

__all__ = ["stats"]

_COUNTS = ("ready", "scheduled", "in_flight", "done", "dead")


@click.command()
@url_option
@schema_option
@stores_option
@boxes_option
@click.option(
    "--watch",
    type=DURATION,
    is_flag=False,
    flag_value="2s",
    help="Show it again at this interval, 2 s unless given, until Ctrl-C.",
)
@json_option
def stats(
    url: str | None,
    schema: str,
    stores_name: str | None,
    names: tuple[str, ...],
    watch: timedelta | None,
    as_json: bool,
) -> None:
    """Count the messages of each topic in each state.

    \b
    Examples:
      pysqlbox stats
      pysqlbox stats --box orders --watch 5s
      pysqlbox stats --json
      pysqlbox stats --stores shop.tenants:stores
    """
    if stores_name is not None:
        many.stats(stores_name, names, watch, as_json)
        return
    with deployment(url, schema) as db:
        if watch is None:
            _show(_read(db, names), {}, 0.0, as_json)
            return
        _watch(db, names, watch, as_json)


def _watch(db: Deployment, names: tuple[str, ...], interval: timedelta, as_json: bool) -> None:
    before: dict[str, int] = {}
    seen_at = time.monotonic()
    with stopping() as stop:
        while not stop.is_set():
            try:
                found = _read(db, names)
            except DatabaseUnavailable as error:
                click.echo(f"pysqlbox: {error}; trying again", err=True)
            else:
                now = time.monotonic()
                if not as_json and sys.stdout.isatty():
                    click.clear()
                _show(found, before, now - seen_at, as_json)
                before = {name: rows[-1].done for name, rows in found.items()}
                seen_at = now
            stop.wait(interval.total_seconds())


def _read(db: Deployment, names: tuple[str, ...]) -> dict[str, list[TopicStats]]:
    return {name: db.box(name).stats() for name in names}


def _show(found: dict[str, list[TopicStats]], before: dict[str, int], seconds: float, as_json: bool) -> None:
    """One table; in a watch, also how many were done per second since the last one."""
    if as_json:
        echo_json([{"box": name, **fields_of(row)} for name, rows in found.items() for row in rows])
        return
    titles = ["box", "topic", *(count.replace("_", " ") for count in _COUNTS), "oldest"]
    lines: list[list[object]] = []
    for name, rows in found.items():
        for row in rows:
            topic = "all" if row.topic is None else row.topic
            counts = [getattr(row, count) for count in _COUNTS]
            lines.append([name, topic, *counts, age(row.oldest_ready_seconds)])
    width = max(20, shutil.get_terminal_size((120, 24)).columns - 60)
    for line in lines:
        line[1] = str(line[1]) if len(str(line[1])) <= width else str(line[1])[: width - 1] + "…"
    click.echo(table(titles, lines, right=titles[2:]))
    for name, rows in found.items():
        if name in before and seconds > 0:
            click.echo(f"{name}: {max(0, rows[-1].done - before[name]) / seconds:,.1f} done/s")
