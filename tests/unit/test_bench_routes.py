"""The benchmark suite's other paths through a queue: who takes part, and where messages go."""

from __future__ import annotations

import psycopg
import pytest

from benchmarks.suite.contestants.base import Load, SqlContestant
from benchmarks.suite.contestants.floors import StatusTable
from benchmarks.suite.contestants.pysqlbox import BOX, Pysqlbox, PysqlboxSettle
from benchmarks.suite.scenarios.held import ROUTES, HeldPaths, HeldWriter, writer

BACKLOG, PUT = 20, 6
EVERYTHING = [
    (contestant, name)
    for contestant in (Pysqlbox(), PysqlboxSettle(), StatusTable())
    for name in ROUTES
    if HeldPaths().takes_part(contestant, name)
]


def test_who_has_the_notion() -> None:
    scenario = HeldPaths()
    there = {
        name: {one.name for one in scenario.contestants if scenario.takes_part(one, name)}
        for name in scenario.variants
    }
    ours = {"pysqlbox", "pysqlbox settle"}
    assert there == {
        "priority 5": {*ours, "status column"},
        "priority -5": {*ours, "status column"},
        "one topic paused": {*ours, "status column"},
        "one hot group": {*ours, "pgmq"},
        "limited to topics": {*ours, "status column"},
    }


def test_a_writer_is_beside_everybody() -> None:
    scenario = HeldWriter()
    there = {one.name for one in scenario.contestants if scenario.takes_part(one, scenario.variants[0])}
    assert there == {
        "pysqlbox",
        "pysqlbox settle",
        "pgmq",
        "pgq",
        "pgque",
        "delete skip locked",
        "status column",
    }


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("contestant", "name"), EVERYTHING, ids=[f"{one.name}-{name}" for one, name in EVERYTHING]
)
def test_messages_go_the_way_they_should(contestant: SqlContestant, name: str, empty_url: str) -> None:
    """What is put in comes out; of the backlog only what may."""
    route = ROUTES[name]
    contestant.build(empty_url, Load(BACKLOG, 20, route=route))
    put = contestant.route_bulk(empty_url, 20, PUT, route)
    take = contestant.route_drain(empty_url, 5, route)
    with psycopg.connect(empty_url, autocommit=True) as connection:
        enqueue, claim = put.session(connection), take.session(connection)
        assert enqueue() == PUT
        taken = 0
        while moved := claim():
            taken += moved
    kept = BACKLOG // 2 if route.others else 0
    assert taken == BACKLOG + PUT - kept
    assert contestant.count_remaining(empty_url) == kept


@pytest.mark.dialect("postgres")
def test_messages_are_of_the_route(empty_url: str) -> None:
    contestant = Pysqlbox()
    contestant.build(empty_url, None)
    with psycopg.connect(empty_url, autocommit=True) as connection:
        for name in ("priority -5", "one hot group", "limited to topics"):
            contestant.route_bulk(empty_url, 20, 2, ROUTES[name]).session(connection)()
        rows = connection.execute(
            f"SELECT m.topic, m.priority, m.group_id FROM {BOX}_messages AS m ORDER BY m.id"
        ).fetchall()
    assert rows == [
        *[("orders", -5, None)] * 2,
        *[("orders", 0, "customer 1")] * 2,
        ("orders", 0, None),
        ("returns", 0, None),
    ]


@pytest.mark.dialect("postgres")
def test_the_writer_holds_an_id_and_no_snapshot(empty_url: str) -> None:
    with psycopg.connect(empty_url, autocommit=True) as connection:
        seen = (
            "SELECT backend_xid IS NOT NULL, backend_xmin IS NULL FROM pg_stat_activity "
            "WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        with writer(empty_url):
            assert connection.execute(seen).fetchall() == [(True, True)]
        assert connection.execute("SELECT count(*) FROM public.bystander").fetchall() == [(0,)]
