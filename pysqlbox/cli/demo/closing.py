"""The demo's accounts: what the boxes say, what the shop's tables say, and whether both agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import click

from pysqlbox.cli.demo import shop
from pysqlbox.cli.output import table
from pysqlbox.deployment import Deployment
from pysqlbox.messages import OutboxDeadLetter

__all__ = ["Happened", "is_closed", "report"]


@dataclass(slots=True)
class Happened:
    """What only those know who were there."""

    day: shop.Day
    orphans: set[UUID]
    join_id: UUID
    processes: int
    graceful: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Check:
    label: str
    expected: object
    found: object

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def is_closed(db: Deployment) -> bool:
    """Whether the day's closing has been recorded, and nothing is left to do."""
    closed = shop.query(db, "SELECT orders FROM shop.daily_closing")
    return bool(closed) and not _waiting(db)


def report(db: Deployment, happened: Happened) -> bool:
    """Print what happened and the closing table; whether everything adds up."""
    _print_boxes(db)
    _print_mishaps(db, happened)
    checks = list(_checks(db, happened))
    click.echo()
    lines = [
        (check.label, _shown(check.expected), _shown(check.found), "ok" if check.holds else "WRONG")
        for check in checks
    ]
    click.echo(table(["closing", "expected", "found", ""], lines, right=("expected", "found")))
    click.echo()
    if all(check.holds for check in checks):
        click.echo(f"every message accounted for, after {happened.seconds:.1f} seconds of business")
        return True
    click.echo("something does not add up: please report it", err=True)
    return False


def _print_boxes(db: Deployment) -> None:
    lines = [
        (box.name, row.topic or "all", row.done, row.dead, row.ready + row.scheduled + row.in_flight)
        for box in (db.outbox, db.inbox)
        for row in box.stats()
    ]
    titles = ["box", "topic", "done", "dead", "waiting"]
    click.echo()
    click.echo(table(titles, lines, right=titles[2:]))


def _print_mishaps(db: Deployment, happened: Happened) -> None:
    (deliveries, turned_away), *_ = shop.query(
        db, "SELECT count(*), count(*) FILTER (WHERE outcome <> 'created') FROM shop.delivery"
    )
    retried = _count(db, f"SELECT count(*) FROM {db.schema}.outbox_messages WHERE attempt > 0")
    reasons = sorted({letter.last_error or "" for letter in db.outbox.dead_letters()})
    lines = [
        ("orders rolled back with their messages", len(happened.day.declined)),
        ("deliveries to the inbox", deliveries),
        ("of these duplicates, which it turned away", turned_away),
        ("messages that needed another try", retried),
        ("of these left by the killed courier", len(happened.orphans)),
        (f"dead letters ({', '.join(reasons)})", db.outbox.stats()[-1].dead),
    ]
    click.echo()
    click.echo(table(["mishaps", ""], lines, right=("",)))


def _checks(db: Deployment, happened: Happened) -> Iterator[_Check]:
    placed = next(row for row in db.outbox.stats() if row.topic == "order.placed")
    inbox = db.inbox.stats()[-1]
    orders = _count(db, "SELECT count(*) FROM shop.orders")
    bookings = _count(db, "SELECT count(*) FROM shop.booking")
    yield _Check("orders, and messages that tell of them", orders, placed.done + placed.dead)
    ghosts = [1 for message_id in happened.day.declined if db.outbox.find(message_id) is not None]
    yield _Check("messages of orders that were rolled back", 0, len(ghosts))
    yield _Check("messages still waiting in either box", 0, _waiting(db))
    yield _Check("messages carried, and messages in the inbox", placed.done, inbox.done + inbox.dead)
    yield _Check("messages done in the inbox, and bookings", inbox.done, bookings)
    dead = {int(json.loads(letter.payload)["order_id"]) for letter in _dead_letters(db)}
    unbooked = shop.query(db, "SELECT id FROM shop.orders EXCEPT SELECT order_id FROM shop.booking")
    yield _Check("dead letters, and orders that are not booked", dead, {order_id for (order_id,) in unbooked})
    twice = "SELECT count(*) FROM (SELECT FROM shop.booking GROUP BY order_id HAVING count(*) > 1) AS twice"
    yield _Check("orders booked more than once", 0, _count(db, twice))
    late = (
        "SELECT count(*) FROM (SELECT order_id, max(order_id) OVER (PARTITION BY customer ORDER BY no)"
        " FROM shop.booking) AS b (order_id, before) WHERE before > order_id"
    )
    yield _Check("bookings out of their customer's order", 0, _count(db, late))
    settled = (
        f"SELECT count(*) FROM {db.schema}.outbox_messages"
        " WHERE message_id = ANY(%s) AND status IN ('Done', 'Failed') AND attempt > 0"
    )
    orphans = list(happened.orphans)
    yield _Check("the killed courier's messages, done by others", len(orphans), _count(db, settled, orphans))
    join = db.joins.get(happened.join_id)
    yield _Check(
        "tills, as steps of the join", (shop.TILLS, "Completed"), (join.completed_steps, join.status)
    )
    booked = shop.query(db, "SELECT count(*), sum(cents) FROM shop.booking")
    closed = shop.query(db, "SELECT orders, cents FROM shop.daily_closing")
    yield _Check("bookings, and the closings of the day", booked, closed)
    yield _Check("workers told to stop, and those that ended well", happened.processes, happened.graceful)


def _dead_letters(db: Deployment) -> Iterator[OutboxDeadLetter]:
    after = 0
    while letters := db.outbox.dead_letters(limit=1000, after_id=after):
        yield from letters
        after = letters[-1].id


def _waiting(db: Deployment) -> int:
    totals = [box.stats()[-1] for box in (db.outbox, db.inbox)]
    return sum(total.ready + total.scheduled + total.in_flight for total in totals)


def _count(db: Deployment, query: str, *values: object) -> int:
    return int(shop.query(db, query, *values)[0][0])


def _shown(value: object) -> str:
    """A number with its thousands parted; of a set its size; of rows and tuples their values."""
    if isinstance(value, set):
        return f"{len(value):,}"
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    if isinstance(value, tuple):
        return " / ".join(map(_shown, value))
    return str(value) if isinstance(value, str) or value is None else f"{int(str(value)):,}"
