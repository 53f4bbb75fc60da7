"""What commands do about many stores, where ``--stores`` names them in place of ``--url``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from pysqlbox.cli.loading import load, parameters
from pysqlbox.cli.options import json_option, stopping
from pysqlbox.cli.output import age, echo_json, fields_of, moment, printable, table
from pysqlbox.deploy.migrate import status as plan_of
from pysqlbox.deployment import Deployment
from pysqlbox.names import StoreKey
from pysqlbox.stores.each import AT_ONCE, report
from pysqlbox.stores.reports import StoreMigration
from pysqlbox.stores.store import Store
from pysqlbox.stores.stores import Stores
from pysqlbox.upkeep import Upkeep

__all__ = ["parallel_option", "stores", "stores_option"]

Command = TypeVar("Command", bound=Callable[..., Any])
_HINT = "MODULE:STORES"


def stores_option(command: Command) -> Command:
    """Many stores in place of one deployment."""
    text = (
        "Many stores in place of --url: a pysqlbox.Stores of a module, or a function without parameters that"
        " answers one."
    )
    return click.option("--stores", "stores_name", metavar=_HINT, help=text)(command)


def parallel_option(command: Command) -> Command:
    """How many of them at once."""
    return click.option(
        "--parallel",
        type=click.IntRange(1, 100),
        default=AT_ONCE,
        show_default=True,
        help="With --stores: how many of them at once.",
    )(command)


@contextlib.contextmanager
def open_stores(name: str) -> Iterator[Stores]:
    """The stores that an option names; made by a function, they are closed at the end."""
    context = click.get_current_context()
    for other in ("url", "schema"):
        if context.get_parameter_source(other) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{other}: cannot stand beside --stores")
    found = load(name, "--stores")
    made = callable(found) and not isinstance(found, Stores)
    if made and parameters(found) == 0:
        found = found()
    if not isinstance(found, Stores):
        text = f"must be pysqlbox.Stores or a function that answers some, not {type(found).__name__}"
        raise click.BadParameter(text, param_hint="--stores")
    with found if made else contextlib.nullcontext(found):
        yield found


# What is done to each


def migrate(name: str, parallel: int, as_json: bool, **options: Any) -> None:
    """Deploy each, and say what was done."""
    with open_stores(name) as found:
        _show_migration(found.migrate(parallel=parallel, **options), as_json, **options)


def migrate_citus(url: str | None, schema: str, parallel: int, as_json: bool, **options: Any) -> None:
    """Deploy every node of a Citus cluster, and say what was done."""
    with Stores.citus(url, schema=schema) as found:
        _show_migration(found.migrate(parallel=parallel, **options), as_json, **options)


def _show_migration(reports: Sequence[StoreMigration], as_json: bool, **options: Any) -> None:
    if as_json:
        echo_json(reports)
    else:
        verb = "would change" if options.get("dry_run") else "changed"
        for each in reports:
            _line(each, "; ".join(each.changes) if each.changes else f"up to date, nothing {verb}")
    _end(reports)


@dataclasses.dataclass(frozen=True, slots=True)
class StoreStatus:
    """What is deployed in a store."""

    key: StoreKey
    ok: bool
    error: str | None = None
    version: int | None = None
    target: int | None = None
    place: int | None = None
    pending: list[str] = dataclasses.field(default_factory=list)
    drifted: list[str] = dataclasses.field(default_factory=list)


def status(name: str, parallel: int, as_json: bool) -> None:
    """Compare each with this release."""

    def one(store: Store) -> StoreStatus:
        plan = _plan(store.opened())
        pending = plan.lines(done=False) if plan.version else ["everything"]
        return StoreStatus(
            store.key, True, None, plan.version, plan.target, plan.place, pending, list(plan.drifted)
        )

    with open_stores(name) as found:
        reports = report(found.current(), parallel, one, StoreStatus)
    if as_json:
        echo_json(reports)
    else:
        for each in reports:
            parts = [f"version {each.version} of {each.target}" if each.version else "not deployed"]
            parts += [] if each.place is None else [f"place {each.place}"]
            parts += [f"drift: {', '.join(each.drifted)}"] if each.drifted else []
            parts += [f"pending: {'; '.join(each.pending)}"] if each.pending else ["nothing is pending"]
            _line(each, ", ".join(parts))
    _end(reports)
    if any(each.pending or each.drifted for each in reports):
        click.get_current_context().exit(1)


def stats(name: str, boxes: Sequence[str], watch: timedelta | None, as_json: bool) -> None:
    """Count the messages of each."""
    with open_stores(name) as found:
        if watch is None:
            _end(_show_stats(found, boxes, as_json))
            return
        with stopping() as stop:
            while not stop.is_set():
                _show_stats(found, boxes, as_json)
                stop.wait(watch.total_seconds())


def _show_stats(found: Stores, boxes: Sequence[str], as_json: bool) -> list[Any]:
    reports = found.stats(boxes=boxes)
    if as_json:
        echo_json(
            [
                {"store": str(each.key), "box": box, **fields_of(row)}
                for each in reports
                for box, rows in each.stats.items()
                for row in rows
            ]
        )
    else:
        counts = ("ready", "scheduled", "in_flight", "done", "dead")
        rows = [
            [str(each.key), box, "all" if row.topic is None else row.topic]
            + [getattr(row, count) for count in counts]
            + [age(row.oldest_ready_seconds)]
            for each in reports
            for box, topics in each.stats.items()
            for row in topics
        ]
        titles = ["store", "box", "topic", *(count.replace("_", " ") for count in counts), "oldest"]
        click.echo(table(titles, rows, right=titles[3:]))
    _complain(reports)
    return list(reports)


def doctor(name: str, everything: bool, as_json: bool) -> None:
    """Examine each; exit code 1: a warning or an error."""
    with open_stores(name) as found:
        reports = found.doctor()
    if as_json:
        echo_json(reports)
    else:
        for each in reports:
            fine = sum(finding.level == "ok" for finding in each.findings)
            if each.error is None:
                click.echo(f"{printable(str(each.key))}: {fine} of {len(each.findings)} rows are ok")
            for finding in each.findings:
                if finding.level != "ok" or everything:
                    click.echo(f"  {finding.level:<8} {finding.check}: {printable(finding.subject)}")
                    click.echo(f"           {printable(finding.detail)}")
                    if finding.advice is not None:
                        click.echo(f"           > {printable(finding.advice)}")
        _complain(reports)
    if any(each.error is not None for each in reports):
        click.get_current_context().exit(2)
    if not all(each.ok for each in reports):
        click.get_current_context().exit(1)


def upkeep(name: str, boxes: Sequence[str], every: timedelta | None, as_json: bool, **options: Any) -> None:
    """Reap or clean each, once or again and again."""
    with open_stores(name) as found:
        worker = Upkeep(found, **options)
        if every is None:
            _end(_show_upkeep(worker, boxes, as_json))
            return
        with stopping() as stop:
            while not stop.is_set():
                _show_upkeep(worker, boxes, as_json)
                stop.wait(every.total_seconds())


def _show_upkeep(worker: Upkeep, boxes: Sequence[str], as_json: bool) -> list[Any]:
    reports = worker.run_once(boxes, ledger=True)
    if as_json:
        echo_json(reports)
    else:
        for each in reports:
            _line(each, ", ".join(f"{label} {count}" for label, count in each.counts.items()))
    return list(reports)


# Listing them


@dataclasses.dataclass(frozen=True, slots=True)
class StoreSeen:
    """A store as ``pysqlbox stores`` lists it."""

    key: StoreKey
    ok: bool
    error: str | None = None
    version: int | None = None
    place: int | None = None
    #: "ok", or the worst that doctor says.
    health: str | None = None
    ready: int | None = None
    dead: int | None = None
    #: When a worker last finished a message, as far as is still known.
    last_work_at: datetime | None = None


_LEVELS = ("error", "warning", "unknown", "note", "ok")


@click.command(short_help="List many stores: version, health, what waits.")
@click.option("--stores", "stores_name", metavar=_HINT, required=True, help="pysqlbox.Stores of a module.")
@parallel_option
@json_option
def stores(stores_name: str, parallel: int, as_json: bool) -> None:
    """List the stores: version, health, what waits, and when work was last seen. Exit code 2: one is away.

    \b
    Examples:
      pysqlbox stores --stores shop.tenants:stores
      pysqlbox stores --stores shop.tenants:stores --json
    """
    with open_stores(stores_name) as found:
        reports = report(found.current(), parallel, _seen, StoreSeen)
    if as_json:
        echo_json(reports)
    else:
        titles = ["store", "version", "place", "health", "ready", "dead", "last work"]
        rows = [
            [
                str(each.key),
                each.version,
                each.place,
                each.health if each.ok else "away",
                each.ready,
                each.dead,
                moment(each.last_work_at),
            ]
            for each in reports
        ]
        click.echo(table(titles, rows, right=["version", "place", "ready", "dead"]))
        _complain(reports)
    if any(not each.ok for each in reports):
        click.get_current_context().exit(2)


def _seen(store: Store) -> StoreSeen:
    db = store.opened()
    boxes: list[Any] = [db.box(name) for name in db.boxes()]
    totals = [box.stats()[-1] for box in boxes]
    done = [worker.last_done_at for box in boxes for worker in box.workers() if worker.last_done_at]
    levels = {finding.level for finding in db.doctor()}
    return StoreSeen(
        store.key,
        True,
        version=db.schema_version(),
        place=db.schema_place(),
        health=next((level for level in _LEVELS if level in levels), "ok"),
        ready=sum(row.ready for row in totals),
        dead=sum(row.dead for row in totals),
        last_work_at=max(done, default=None),
    )


def _plan(db: Deployment) -> Any:
    return plan_of(db.target, schema=db.schema)


def _line(each: Any, text: str) -> None:
    if each.error is None:
        click.echo(f"{printable(str(each.key))}: {text}")
    else:
        click.echo(f"{printable(str(each.key))}: failed: {printable(each.error)}", err=True)


def _complain(reports: Sequence[Any]) -> None:
    for each in reports:
        if each.error is not None:
            _line(each, "")


def _end(reports: Sequence[Any]) -> None:
    """Exit code 2 if one has failed; the others are done all the same."""
    if any(each.error is not None for each in reports):
        click.get_current_context().exit(2)
