"""pysqlbox on SQL Server or Babelfish, where PYSQLBOX_TEST_MSSQL says where one is."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pysqlbox
from benchmarks.queue.boxes import SCHEMA
from benchmarks.queue.contenders import LEASE_SECONDS, Contender, Step
from benchmarks.suite.contestants.base import Ability, Load, SqlContestant, steps_of, text_of
from benchmarks.suite.contestants.floors import pause_until
from benchmarks.suite.runner import UnavailableError
from benchmarks.suite.server import Cost, Lab
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import mssql
from pysqlbox.drivers.url import parse_url, with_database

VARIABLE = "PYSQLBOX_TEST_MSSQL"
DATABASE = "pysqlbox_bench"
DROP_SECONDS = 15
BACKLOG = 10_000


@dataclass(frozen=True)
class TsqlContender(Contender):
    """A loop over pyodbc."""

    def connect(self) -> Any:
        """In autocommit."""
        return mssql.connect(parse_url(self.conninfo), autocommit=True)

    def backend(self, connection: Any) -> int | None:  # noqa: ARG002 - nobody tells
        """Not known."""
        return None


@dataclass(frozen=True)
class TsqlPut(TsqlContender):
    """Enqueue: one, or many."""

    routine: str
    argument: str
    value: str
    records: int

    def session(self, connection: Any) -> Step:
        """A call."""
        arguments: dict[str, object] = {self.argument: self.value}
        if self.routine == "outbox_enqueue":
            arguments = {"topic": "orders", **arguments}

        def step() -> int:
            mssql.fetch(connection, SCHEMA, self.routine, arguments)
            return self.records

        return step


@dataclass(frozen=True)
class TsqlTake(TsqlContender):
    """Claim, ack; abandon if some are given back."""

    batch: int
    retries: bool = False

    def session(self, connection: Any) -> Step:
        """Two calls a batch, or three."""
        owner = uuid.uuid4()

        def call(routine: str, arguments: dict[str, object]) -> list[dict[str, object]]:
            return mssql.call(connection, SCHEMA, f"outbox_{routine}", {"owner_token": owner, **arguments})

        def step() -> int:
            rows = call("claim", {"lease_seconds": LEASE_SECONDS, "batch_size": self.batch})
            fresh = [row["id"] for row in rows if not row["attempt"]] if self.retries else []
            again = [identity for identity in fresh if int(str(identity)) % 2]
            back = set(again)
            good = [row["id"] for row in rows if row["id"] not in back]
            if good:
                call("ack", {"ids": json.dumps(good)})
            if again:
                call("abandon", {"ids": json.dumps(again), "last_error": "not yet", "delay_seconds": 0.001})
            return len(good) or -min(len(again), 1)

        return step


class PysqlboxTsql(SqlContestant):
    """The same routines as procedures, called by this package's driver."""

    name = "pysqlbox T-SQL"
    family = "pysqlbox_T-SQL"
    source = (
        f"the routines' headers, called by this package's driver; on the server that {VARIABLE} names, with "
        "its own settings, so compare it with the others only roughly"
    )
    keeps = "keeps message and outcome until cleanup"
    can: ClassVar[frozenset[Ability]] = frozenset(
        {"single", "bulk", "drain", "parallel", "delay", "retry", "groups", "joins"}
    )
    most = BACKLOG

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - not the lab's server
        """A server must be named."""
        if not os.environ.get(VARIABLE):
            raise UnavailableError(f"{VARIABLE} is not set")
        with contextlib.closing(self._server()) as connection:
            version = str(mssql.query(connection, "SELECT @@VERSION AS version")[0][0])
        return {"pysqlbox": pysqlbox.__version__, "server": " ".join(version.split())[:80]}

    @contextlib.contextmanager
    def place(self, lab: Lab, load: Load | None = None) -> Iterator[str]:  # noqa: ARG002 - the interface
        """A database made for this measurement."""
        with contextlib.closing(self._server()) as connection:
            self._drop(connection)
            mssql.run_batch(connection, f"CREATE DATABASE {DATABASE}")
            try:
                url = with_database(os.environ[VARIABLE], DATABASE)
                self.build(url, load)
                yield url
            finally:
                self._drop(connection)

    @contextlib.contextmanager
    def metered(self, lab: Lab) -> Iterator[Cost | None]:  # noqa: ARG002 - the interface
        """Nobody tells."""
        yield None

    def create(self, url: str) -> None:
        """The release."""
        migrate(url, schema=SCHEMA, boxes=[])

    def fill(self, url: str, load: Load) -> None:
        """Through enqueue_many."""
        payload, began, due = text_of(load.payload), time.monotonic(), ""
        with contextlib.closing(mssql.connect(parse_url(url), autocommit=True)) as connection:
            if load.due_seconds:
                now: datetime = mssql.query(connection, "SELECT SYSUTCDATETIME() AS now")[0][0]
                due = f"{(now + timedelta(seconds=load.due_seconds)).isoformat(timespec='milliseconds')}Z"
            for first, last in steps_of(load):
                records = [self._record(n, payload, load, due) for n in range(first, last + 1)]
                mssql.fetch(connection, SCHEMA, "outbox_enqueue_many", {"messages": json.dumps(records)})
        if load.due_seconds:
            pause_until(began + load.due_seconds + 0.5)

    @staticmethod
    def _record(number: int, payload: str, load: Load, due: str) -> dict[str, str]:
        record = {"topic": "orders", "payload": payload}
        if load.groups:
            record["group_id"] = f"customer {number % load.groups}"
        if due and number % 2:
            record["due_at"] = due
        return record

    def load(self, load: Load) -> Load:
        """A backlog that is filled in time: each measurement gets its own, there is nothing to copy."""
        return replace(load, count=min(load.count, BACKLOG), groups=min(load.groups, BACKLOG // 10))

    def attach(self, url: str, load: Load) -> None:
        """join_start, join_attach."""
        with contextlib.closing(mssql.connect(parse_url(url), autocommit=True)) as connection:
            start = {"tenant_id": "tenant", "expected_steps": load.count}
            made = [
                mssql.call(connection, SCHEMA, "join_start", start)[0]["join_id"] for _ in range(load.joins)
            ]
            messages = mssql.query(connection, f"SELECT message_id FROM {SCHEMA}.outbox_message ORDER BY id")
            for number, (message,) in enumerate(messages):
                step = {"join_id": made[number // load.batch % load.joins], "message_id": message}
                mssql.fetch(connection, SCHEMA, "join_attach", step)

    def count_remaining(self, url: str) -> int | None:
        """As its statistics say."""
        with contextlib.closing(mssql.connect(parse_url(url), autocommit=True)) as connection:
            for row in mssql.call(connection, SCHEMA, "outbox_stats", {}):
                if row["topic"] is None:
                    return sum(int(str(row[name])) for name in ("ready", "scheduled", "in_flight"))
        return None

    def single(self, url: str, payload: int) -> Contender:
        """enqueue."""
        return TsqlPut(self.name, url, "outbox_enqueue", "payload", text_of(payload), 1)

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """enqueue_many."""
        messages = json.dumps([{"topic": "orders", "payload": text_of(payload)}] * records)
        return TsqlPut(self.name, url, "outbox_enqueue_many", "messages", messages, records)

    def drain(self, url: str, batch: int) -> Contender:
        """claim, ack."""
        return TsqlTake(self.name, url, batch)

    def grouped(self, url: str, batch: int, groups: int) -> Contender:  # noqa: ARG002 - the interface
        """The same calls."""
        return self.drain(url, batch)

    def retry(self, url: str, batch: int) -> Contender:
        """claim, ack, abandon."""
        return TsqlTake(self.name, url, batch, retries=True)

    @staticmethod
    def _drop(connection: Any) -> None:
        """The server may take a moment to notice that the clients have gone."""
        deadline = time.monotonic() + DROP_SECONDS
        while True:
            try:
                mssql.run_batch(connection, f"DROP DATABASE IF EXISTS {DATABASE}")
            except mssql.database_error():
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    @staticmethod
    def _server() -> Any:
        return mssql.connect(parse_url(os.environ[VARIABLE]), autocommit=True)
