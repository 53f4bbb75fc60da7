"""pysqlbox itself: its routines, called as they are documented."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pysqlbox
from benchmarks.queue.boxes import SCHEMA, deploy, fill
from benchmarks.queue.contenders import LEASE_SECONDS, ClaimAck, Contender, Settle, Step, id_array
from benchmarks.queue.producers import Enqueue, EnqueueMany
from benchmarks.queue.scenarios.joins import attach
from benchmarks.suite.contestants.base import (
    Ability,
    Load,
    Route,
    SqlContestant,
    connect,
    halves,
    steps_of,
    text_of,
)
from benchmarks.suite.contestants.floors import Statement
from benchmarks.suite.server import Lab

BOX = f"{SCHEMA}.outbox"
KEEP_SECONDS = 60


@dataclass(frozen=True)
class Retry(Contender):
    """Claim; ack and abandon."""

    box: str
    batch: int

    def session(self, connection: Any) -> Step:
        """Three calls a batch, two where nothing is given back."""
        cursor = connection.cursor(binary=True)
        owner = uuid.uuid4()
        claim = f"SELECT * FROM {self.box}_claim(%s, {LEASE_SECONDS}, {self.batch})"
        ack = f"SELECT * FROM {self.box}_ack(%s, %s::bigint[])"
        abandon = f"SELECT * FROM {self.box}_abandon(%s, %s::bigint[], 'not yet', 0.001)"

        def step() -> int:
            rows = cursor.execute(claim, [owner], prepare=True).fetchall()
            good, again = halves(rows)
            if good:
                cursor.execute(ack, [owner, id_array(good)], prepare=True).fetchall()
            if again:
                cursor.execute(abandon, [owner, id_array(again)], prepare=True).fetchall()
            return len(good) or -min(len(again), 1)

        return step


@dataclass(frozen=True)
class SettleRetry(Contender):
    """Settle with both outcomes."""

    box: str
    batch: int

    def session(self, connection: Any) -> Step:
        """One call a batch."""
        cursor = connection.cursor(binary=True)
        owner = uuid.uuid4()
        settle = f"SELECT * FROM {self.box}_settle(%s, %s::jsonb, {self.batch}, {LEASE_SECONDS})"
        outcomes = "[]"

        def step() -> int:
            nonlocal outcomes
            rows = cursor.execute(settle, [owner, outcomes], prepare=True).fetchall()
            good, again = halves(rows)
            records = []
            if good:
                records.append(f'{{"ids":[{_listed(good)}],"result":"ack"}}')
            if again:
                records.append(
                    f'{{"ids":[{_listed(again)}],"result":"abandon","error":"not yet","delay_seconds":0.001}}'
                )
            outcomes = f"[{','.join(records)}]"
            return len(good) or -min(len(again), 1)

        return step


def _listed(rows: Sequence[tuple[Any, ...]]) -> str:
    return ",".join([str(row[0]) for row in rows])


def _records(route: Route, topics: Sequence[str]) -> tuple[str, ...]:
    """What a route's messages have of their own, as JSON, one for each turn."""
    common: dict[str, Any] = {"priority": route.priority} if route.priority else {}
    common |= {"group_id": route.group} if route.group else {}
    return tuple(json.dumps({**common, "topic": topic}) for topic in topics)


class Pysqlbox(SqlContestant):
    """Two calls a batch: claim, then ack."""

    name = "pysqlbox"
    family = "pysqlbox"
    channel = BOX
    source = "the routines' headers; claim and ack, two calls a batch"
    keeps = "keeps message and outcome until cleanup"
    can: ClassVar[frozenset[Ability]] = frozenset(
        {
            "single",
            "bulk",
            "drain",
            "parallel",
            "delay",
            "retry",
            "groups",
            "joins",
            "priorities",
            "topics",
            "pausing",
        }
    )
    remaining = f"SELECT s.ready + s.scheduled + s.in_flight FROM {BOX}_stats() AS s WHERE s.topic IS NULL"

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - nothing to get
        """It is here."""
        return {"pysqlbox": pysqlbox.__version__}

    def create(self, url: str) -> None:
        """The release."""
        deploy(url, [])

    def fill(self, url: str, load: Load) -> None:
        """Through enqueue_many."""
        began = time.monotonic()
        record = ""
        parameters: list[str | list[str]] = []
        if load.groups:
            record = f"jsonb_build_object('group_id', 'customer ' || n %% {load.groups})"
        if load.due_seconds:
            record = "CASE n %% 2 WHEN 1 THEN jsonb_build_object('due_at', %s::text) ELSE '{}' END"
        if load.route:
            turns = _records(load.route, load.route.backlog_topics)
            record = f"(%s::jsonb[])[1 + n %% {len(turns)}]"
            parameters = [list(turns)]
        with connect(url) as connection:
            if load.route and load.route.paused:
                connection.execute(f"SELECT * FROM {BOX}_pause(%s)", [load.route.others])
            if load.due_seconds:
                row = connection.execute("SELECT (now() + %s * interval '1 s')::text", [load.due_seconds])
                parameters = [str(row.fetchall()[0][0])]
            size = next(steps_of(load))[1] + 1
            fill(connection, BOX, load.count, record, parameters, payload=text_of(load.payload), step=size)
        time.sleep(max(0.0, load.due_seconds + 0.5 - (time.monotonic() - began)) if load.due_seconds else 0)

    def attach(self, url: str, load: Load) -> None:
        """join_start, join_attach."""
        with connect(url) as connection:
            attach(connection, SCHEMA, load.count, load.joins, load.batch)

    def single(self, url: str, payload: int) -> Contender:
        """enqueue."""
        return Enqueue(self.name, url, BOX, text_of(payload))

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """enqueue_many."""
        return EnqueueMany(self.name, url, BOX, records, text_of(payload))

    def drain(self, url: str, batch: int) -> Contender:
        """claim, ack."""
        return ClaimAck(self.name, url, BOX, batch)

    def grouped(self, url: str, batch: int, groups: int) -> Contender:  # noqa: ARG002 - the interface
        """The same calls."""
        return self.drain(url, batch)

    def retry(self, url: str, batch: int) -> Contender:
        """claim, ack, abandon."""
        return Retry(self.name, url, BOX, batch)

    def route_bulk(self, url: str, payload: int, records: int, route: Route) -> Contender:
        """enqueue_many."""
        return EnqueueMany(self.name, url, BOX, records, text_of(payload), _records(route, route.topics))

    def route_drain(self, url: str, batch: int, route: Route) -> Contender:
        """claim, ack."""
        return ClaimAck(self.name, url, BOX, batch, route.topics if route.asked else ())

    def maintain(self, url: str) -> None:
        """cleanup, until there is nothing older than a minute."""
        with connect(url) as connection:
            cleanup = f"SELECT affected FROM {BOX}_cleanup({KEEP_SECONDS}, 10000)"
            while connection.execute(cleanup).fetchall()[0][0]:
                pass


class PysqlboxSettle(Pysqlbox):
    """One call a batch: settle what is held and claim the next."""

    name = "pysqlbox settle"
    source = "the routines' headers; settle, one call a batch, which is what the worker calls"
    keeps_in_hand = True
    sends_alike = True

    def drain(self, url: str, batch: int) -> Contender:
        """settle."""
        return Settle(self.name, url, BOX, batch)

    def route_drain(self, url: str, batch: int, route: Route) -> Contender:
        """settle."""
        return Settle(self.name, url, BOX, batch, route.topics if route.asked else ())

    def retry(self, url: str, batch: int) -> Contender:
        """settle."""
        return SettleRetry(self.name, url, BOX, batch)


class PysqlboxPayloads(Pysqlbox):
    """The other call for many messages: those that differ only in their payloads."""

    name = "pysqlbox payloads"
    source = "the routines' headers; enqueue_payloads, for messages that have all else in common"
    can: ClassVar[frozenset[Ability]] = frozenset({"bulk"})

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """enqueue_payloads."""
        payloads = "{" + ",".join([text_of(payload)] * records) + "}"
        enqueue = f"SELECT * FROM {BOX}_enqueue_payloads('orders', %s::text[])"
        return Statement(self.name, url, enqueue, payloads, records)
