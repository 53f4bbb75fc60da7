"""``pysqlbox demo``: the main job on a throw-away embedded PostgreSQL, by nothing but the routines."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import Row, Target, connect, driver_for, parse_url
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.errors import PysqlboxError

SCHEMA = "infra"
TOPICS = ("order.created", "order.paid", "email.send")
BATCH = 50


@dataclass
class Tally:
    """What the demo's threads have done, for the closing table."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    enqueued: int = 0
    duplicates: int = 0
    handled: dict[int, int] = field(default_factory=dict)
    retried: int = 0
    given_up: int = 0
    lost_by_crash: int = 0


class Client:
    """One connection that calls routines, each in a transaction of its own."""

    def __init__(self, target: Target) -> None:
        self._driver = driver_for(target.dialect)
        self._connection = connect(target, autocommit=True)

    def call(self, routine: str, **arguments: Any) -> list[Row]:
        return self._driver.call(self._connection, SCHEMA, routine, arguments)

    def close(self) -> None:
        self._connection.close()


@click.command()
@click.option("--messages", default=20_000, show_default=True, type=click.IntRange(1_000, 1_000_000))
@click.option("--workers", default=4, show_default=True, type=click.IntRange(1, 32))
def demo(messages: int, workers: int) -> None:
    """Deploy to a temporary embedded PostgreSQL and move messages through the outbox, mishaps included."""
    click.echo("starting an embedded PostgreSQL in a temporary directory …")
    with EmbeddedServer(temporary=True) as server:
        target = parse_url(server.url)
        plan = migrate(target, schema=SCHEMA)
        click.echo(
            f"deployed {SCHEMA!r}: {len(plan.tables)} table files, {len(plan.routines)} routines and views"
        )
        tally = Tally()
        started = time.monotonic()
        _produce(target, messages, tally)
        produced = time.monotonic()
        _crash(target, tally)
        _work(target, workers, tally)
        ended = time.monotonic()
        client = Client(target)
        stats = client.call("outbox_stats")
        dead = client.call("outbox_dead_letters", limit=10_000)
        client.close()
    _report(tally, stats, dead, produced - started, ended - produced)


def _produce(target: Target, messages: int, tally: Tally) -> None:
    """Enqueue in batches: some delayed, some in FIFO groups, some with a key that was there before."""
    client = Client(target)
    chance = random.Random(1)
    with _progress("enqueue", messages) as bar:
        for first in range(0, messages, 500):
            records = [_record(n, chance) for n in range(first, min(first + 500, messages))]
            for row in client.call("outbox_enqueue_many", messages=records):
                if row["outcome"] == "duplicate":
                    tally.duplicates += 1
                else:
                    tally.enqueued += 1
            bar.update(len(records))
    client.close()


def _record(n: int, chance: random.Random) -> dict[str, object]:
    record: dict[str, object] = {"topic": chance.choice(TOPICS), "payload": f'{{"order": {n}}}'}
    if n % 10 == 0:
        record["group_id"] = f"customer-{chance.randrange(50)}"
    if n % 100 == 7:
        record["dedup_key"] = f"order-{n // 200}"
    if n % 1000 == 9:
        record["priority"] = 5
    return record


def _crash(target: Target, tally: Tally) -> None:
    """Claim messages and vanish: their leases run out after a second and they come back by themselves."""
    client = Client(target)
    claimed = client.call("outbox_claim", owner_token=uuid.uuid4(), lease_seconds=1, batch_size=BATCH)
    client.close()
    tally.lost_by_crash = len(claimed)
    click.echo(f"a worker claimed {len(claimed)} messages and was never seen again")


def _work(target: Target, workers: int, tally: Tally) -> None:
    """Drain with several workers; wait until nothing is left in any state but done and dead."""
    failures: list[PysqlboxError] = []

    def run(seed: int) -> None:
        try:
            _drain(target, tally, random.Random(seed))
        except PysqlboxError as error:  # handed to the main thread, which raises it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,), name=f"worker-{n}") for n in range(workers)]
    for thread in threads:
        thread.start()
    with _progress("handle ", tally.enqueued) as bar:
        shown = 0
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.1)
            with tally.lock:
                done = len(tally.handled) + tally.given_up
            bar.update(done - shown)
            shown = done
    if failures:
        raise failures[0]


def _drain(target: Target, tally: Tally, chance: random.Random) -> None:
    """Settle each batch together with the next claim: one round trip a batch."""
    client = Client(target)
    owner = uuid.uuid4()
    outcomes: list[dict[str, object]] = []
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < 2.5:
        rows = client.call(
            "outbox_settle", owner_token=owner, outcomes=outcomes, claim_batch=BATCH, lease_seconds=30
        )
        outcomes = list(_handle(rows, tally, chance))
        if rows:
            idle_since = time.monotonic()
        else:
            time.sleep(0.05)
    client.close()


def _handle(rows: list[Row], tally: Tally, chance: random.Random) -> Iterator[dict[str, object]]:
    for row in rows:
        luck = chance.random()
        if luck < 0.01 and row["attempt"] == 0:
            with tally.lock:
                tally.retried += 1
            yield {"id": row["id"], "result": "abandon", "error": "try again", "delay_seconds": 0.2}
        elif luck > 0.999:
            with tally.lock:
                tally.given_up += 1
            yield {"id": row["id"], "result": "fail", "error": "no such customer"}
        else:
            identity = int(str(row["id"]))
            with tally.lock:
                tally.handled[identity] = tally.handled.get(identity, 0) + 1
            yield {"id": identity, "result": "ack"}


def _progress(label: str, length: int) -> Any:
    return click.progressbar(length=length, label=label, show_pos=True, update_min_steps=max(1, length // 50))


def _report(tally: Tally, stats: list[Row], dead: list[Row], produced: float, worked: float) -> None:
    total = stats[-1]
    twice = sum(1 for count in tally.handled.values() if count > 1)
    click.echo()
    click.echo(f"{'topic':<16}{'done':>9}{'dead':>7}{'waiting':>9}")
    for row in stats:
        waiting = sum(int(str(row[state])) for state in ("ready", "scheduled", "in_flight"))
        click.echo(f"{row['topic'] or 'all':<16}{row['done']!s:>9}{row['dead']!s:>7}{waiting:>9}")
    click.echo()
    for label, value in (
        ("enqueued", f"{tally.enqueued} in {produced:.1f} s ({tally.enqueued / produced:,.0f}/s)"),
        ("duplicates turned away", tally.duplicates),
        (
            "handled",
            f"{len(tally.handled)} in {worked:.1f} s, with the wait for the lost lease",
        ),
        ("retried once", tally.retried),
        ("taken back from the crashed worker", tally.lost_by_crash),
        ("handled twice", twice),
        ("dead letters", len(dead)),
    ):
        click.echo(f"{label:<36}{value}")
    settled = int(str(total["done"])) + int(str(total["dead"]))
    if settled != tally.enqueued or len(tally.handled) + len(dead) != tally.enqueued or twice:
        raise click.ClickException(f"{tally.enqueued} messages went in, but {settled} were settled")
    click.echo(f"{'every message accounted for':<36}yes")
