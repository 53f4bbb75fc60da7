"""`python -m benchmarks.pages`: what each page and each route costs the database, much lying behind it.

CPU time of the one backend that answers, so that a busy machine does not matter much. Every figure of a page
is asked anew, as if its first viewer came.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlencode
from uuid import UUID

import psycopg
from starlette.testclient import TestClient

import pysqlbox
from benchmarks.common import machine, server
from pysqlbox.dashboard import Dashboard
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import parse_url
from pysqlbox.service import app

BAR = 50.0
"""Milliseconds of the database's CPU that a page may take."""
OWNER = UUID("22222222-2222-4222-8222-222222222222")
TOPICS = 5
CAUSES = 30
_BATCH = 10_000
_SEND = "SELECT count(*) FROM infra.outbox_enqueue_payloads(%s, array_fill('{}'::text, ARRAY[%s]))"
_TAKE = "ARRAY(SELECT c.id FROM infra.outbox_claim(%s, 3600, %s) AS c)"
_ACK = f"SELECT affected FROM infra.outbox_ack(%s, {_TAKE})"
_FAIL = f"SELECT affected FROM infra.outbox_fail(%s, {_TAKE}, %s)"


def fill(conninfo: str, done: int, dead: int) -> None:
    """A history of so many done and dead messages, and a little of everything else."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for number, count in enumerate(_batches(done)):
            connection.execute(_SEND, [f"topic {number % TOPICS}", count])
            connection.execute(_ACK, [OWNER, OWNER, count])
        for number, count in enumerate(_batches(dead)):
            connection.execute(_SEND, [f"topic {number % TOPICS}", count])
            connection.execute(_FAIL, [OWNER, OWNER, count, f"no {'c' * (number % CAUSES)}ustomer {number}"])
        connection.execute("VACUUM ANALYZE")


def _batches(count: int) -> Iterator[int]:
    for start in range(0, count, _BATCH):
        yield min(_BATCH, count - start)


def _little(db: pysqlbox.Deployment) -> None:
    for box in (db.outbox, db.inbox):
        more = {"source": "s"} if box is db.inbox else {}
        records = [
            {"topic": "waiting", "payload": "{}", "group_id": f"g{n % 10}"}
            | (more | {"message_id": f"m{n}"} if more else {})
            for n in range(100)
        ]
        box.enqueue_many(records)
    db.ledger.try_begin("a key")


def pages(some: int) -> list[str]:
    """The dashboard's pages, with the dead message that one of them shows."""
    bulk = urlencode({"topic": "topic 1", "cause": "no customer #"})
    return [
        "/", "/topics", "/messages?status=Done", "/messages?status=Done&after=5000000",
        "/messages?status=Failed", "/messages?status=Failed&topic=topic+3", "/messages?status=Ready",
        "/messages?status=Done&topic=nothing", f"/messages/outbox/{some}", "/dead",
        f"/dead/outbox/bulk?{bulk}", "/groups", "/joins", "/schedules", "/ledger", "/workers",
        "/doctor", "/audit",
    ]  # fmt: skip


def routes(some: int) -> list[str]:
    """What the service answers under /v1, and to whoever asks whether it can work."""
    return [
        "/v1/stats", "/v1/messages/outbox?status=Done", "/v1/messages/outbox?status=Failed&topic=topic+3",
        f"/v1/messages/outbox/{some}", "/v1/dead/outbox", "/v1/dead/outbox/causes", "/v1/groups/outbox",
        "/v1/joins", "/v1/schedules/outbox", "/v1/ledger", "/v1/workers", "/v1/doctor", "/v1/audit",
        "/v1/inbox/a%20key", "/readyz",
    ]  # fmt: skip


def costs(db: pysqlbox.Deployment, times: int) -> dict[str, float]:
    """Milliseconds of the backend's CPU by path, and of some calls that are made again and again."""
    board = Dashboard(db)
    assert board.watch is not None
    board.watch.close()  # its thread asks too
    client = TestClient(
        app(db, dashboard=board),
        base_url="http://localhost",
        client=("127.0.0.1", 50000),
        follow_redirects=False,
    )
    with db.connection() as connection:
        backend = int(connection.execute("SELECT pg_backend_pid()").fetchone()[0])
    some = db.outbox.list("Failed", limit=1)[0].id
    found: dict[str, float] = {}
    for path in [*pages(some), *routes(some)]:
        taken = [_cost(backend, lambda path=path: _ask(board, client, path)) for _ in range(times + 1)]  # type: ignore[misc]
        found[path] = statistics.median(taken[1:])  # the first has its plans made
    calls: dict[str, Callable[[], object]] = {
        # /metrics gives scrapes the last answer for a while; this is what a new one costs.
        "metrics()": db.metrics,
        "an entry of the audit log": lambda: db.audit.write(
            "bench", "replay", subject="box outbox", affected=1
        ),
        "a worker's report": lambda: db.register.report(
            OWNER, ["outbox", "inbox"], ["a", "b"], "bench", "here", 1, "1", 4
        ),
    }
    for what, call in calls.items():
        call()
        many = 1 if what == "metrics()" else 200
        taken = [_cost(backend, lambda call=call, many=many: _often(call, many)) for _ in range(times)]  # type: ignore[misc]
        found[what] = statistics.median(taken) / many
    board.close()
    return found


def _often(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def _ask(board: Dashboard, client: TestClient, path: str) -> None:
    assert board.watch is not None
    board.watch.shared.forget()
    answer = client.get(path)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:500]}")


def _cost(backend: int, ask: Callable[[], None]) -> float:
    before = machine.cpu_seconds(backend)
    ask()
    after = machine.cpu_seconds(backend)
    if before is None or after is None:
        raise RuntimeError("the backend's CPU time cannot be read, or it ended")
    return (after - before) * 1000


def main() -> int:
    """Fill and ask; 1 if a page is above the bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--server", default=server.newest_system_server(), help="programs, or embedded")
    parser.add_argument("--done", type=int, default=10_000_000)
    parser.add_argument("--dead", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5, help="a page is asked for; the median is told")
    options = parser.parse_args()
    print(f"{machine.now()}, {machine.machine()}, load {machine.load()}")
    with (
        server.running(options.server, scratch=None, settings={}) as running,
        running.database("bench_pages") as conninfo,
    ):
        migrate(parse_url(conninfo), schema="infra")
        began = time.monotonic()
        fill(conninfo, options.done, options.dead)
        with pysqlbox.connect(conninfo, pool_size=1) as db:
            _little(db)
            print(
                f"PostgreSQL {running.about()['version']}: {options.done:,} done and {options.dead:,} dead,"
            )
            print(f"filled in {time.monotonic() - began:.0f} s, load {machine.load()}", flush=True)
            found = costs(db, options.times)
    for path, cost in found.items():
        print(f"{cost:8.2f} ms  {path}")
    worst = max((path for path in found if path.startswith("/")), key=lambda path: found[path])
    print(f"the dearest: {worst} {found[worst]:.1f} ms (bar {BAR:.0f})")
    return 0 if found[worst] < BAR else 1


if __name__ == "__main__":
    sys.exit(main())
