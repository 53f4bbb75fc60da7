"""``pysqlbox reap`` and ``pysqlbox cleanup``: upkeep by hand, by cron, or as a process of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
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
from pysqlbox.cli.output import echo_json
from pysqlbox.deployment import Deployment
from pysqlbox.errors import DatabaseUnavailable

__all__ = ["cleanup", "reap"]

Steps = Mapping[str, Callable[[], int]]

_every_option = click.option(
    "--every", type=DURATION, help="Do it again at this interval, until SIGTERM or Ctrl-C."
)
_batch_option = click.option(
    "--batch-size",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="How many in one short transaction.",
)


@click.command()
@url_option
@schema_option
@stores_option
@boxes_option
@_every_option
@_batch_option
@json_option
def reap(
    url: str | None,
    schema: str,
    stores_name: str | None,
    names: tuple[str, ...],
    every: timedelta | None,
    batch_size: int,
    as_json: bool,
) -> None:
    """Take expired leases back, all there are.

    Workers do so themselves; this is for boxes that nobody serves.

    \b
    Examples:
      pysqlbox reap
      pysqlbox reap --box orders --every 30s
    """
    if stores_name is not None:
        many.upkeep(
            stores_name, names, every, as_json,
            cleaning=False, ledger_retention=None, audit_retention=None, batch_size=batch_size,
        )  # fmt: skip
        return
    with deployment(url, schema) as db:
        steps = {name: functools.partial(db.box(name).reap, batch_size) for name in names}
        _run(steps, batch_size, every, "reaped", as_json)


@click.command(short_help="Delete what was done before the retention.")
@url_option
@schema_option
@stores_option
@boxes_option
@click.option(
    "--retention", type=DURATION, default="7d", show_default=True, help="How long done messages stay."
)
@click.option("--dead", type=DURATION, help="Delete dead letters too that are older than this.")
@click.option("--ledger", type=DURATION, help="Delete the ledger's keys too that are older than this.")
@click.option("--audit", type=DURATION, help="Delete the audit log's entries too that are older than this.")
@_every_option
@_batch_option
@json_option
def cleanup(
    url: str | None,
    schema: str,
    stores_name: str | None,
    names: tuple[str, ...],
    retention: timedelta,
    dead: timedelta | None,
    ledger: timedelta | None,
    audit: timedelta | None,
    every: timedelta | None,
    batch_size: int,
    as_json: bool,
) -> None:
    """Delete what was done before the retention, in short transactions.

    Dead letters, the ledger's keys and the audit log are only deleted on request.

    \b
    Examples:
      pysqlbox cleanup --retention 30d
      pysqlbox cleanup --box orders --dead 90d --ledger 30d --every 1h
    """
    if stores_name is not None:
        many.upkeep(
            stores_name, names, every, as_json, leases=False,
            retention=retention, dead_retention=dead, ledger_retention=ledger,
            audit_retention=audit, batch_size=batch_size,
        )  # fmt: skip
        return
    with deployment(url, schema) as db:
        steps = _cleanup_steps(db, names, retention, dead, ledger, audit, batch_size)
        _run(steps, batch_size, every, "deleted", as_json)


def _cleanup_steps(
    db: Deployment,
    names: tuple[str, ...],
    retention: timedelta,
    dead: timedelta | None,
    ledger: timedelta | None,
    audit: timedelta | None,
    batch_size: int,
) -> Steps:
    steps: dict[str, Callable[[], int]] = {}
    for name in names:
        box = db.box(name)
        steps[name] = functools.partial(box.cleanup, retention, batch_size=batch_size)
        if dead is not None:
            steps[f"{name} dead letters"] = functools.partial(box.cleanup_dead, dead, batch_size=batch_size)
    if ledger is not None:
        steps["ledger"] = functools.partial(db.ledger.cleanup, ledger, batch_size=batch_size)
    if audit is not None:
        steps["audit"] = functools.partial(db.audit.cleanup, audit, batch_size=batch_size)
    return steps


def _all(step: Callable[[], int], batch_size: int) -> int:
    """Repeat a bounded step until it finds less than it could take."""
    total = 0
    while True:
        affected = step()
        total += affected
        if affected < batch_size:
            return total


def _run(steps: Steps, batch_size: int, every: timedelta | None, verb: str, as_json: bool) -> None:
    """Once, or again and again; a database that is away for a while does not end the loop."""

    def once() -> dict[str, int]:
        return {label: _all(step, batch_size) for label, step in steps.items()}

    if every is None:
        _report(once(), verb, as_json)
        return
    with stopping() as stop:
        while not stop.is_set():
            try:
                _report(once(), verb, as_json)
            except DatabaseUnavailable as error:
                click.echo(f"pysqlbox: {error}; trying again later", err=True)
            stop.wait(every.total_seconds())


def _report(counts: dict[str, int], verb: str, as_json: bool) -> None:
    if as_json:
        echo_json(counts)
        return
    for label, count in counts.items():
        click.echo(f"{label}: {verb} {count}")
