"""Producers and workers that go on whatever happens to the server, and keep their account outside of it.

Each message is sent in one transaction with a row of `orders` and acknowledged in one with a row of
`effects`, as an application would. So the database's own books say afterwards which commits that were never
answered took place, and how often each message took effect.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import psycopg

from pysqlbox.drivers import connect
from pysqlbox.errors import PysqlboxError
from tests.contract.support import Row, ids, json_text
from tests.faults.account import Account
from tests.faults.servers import PATIENCE, Server
from tests.support.boxes import SCHEMA
from tests.support.database import Session

BOXES = ("outbox", "inbox")
LEASE = 3600
"""Seconds; nothing that a worker holds comes back by itself while the load runs."""
BACKLOG = 2000
"""How many messages may wait before producers pause: what the load leaves must be worked off afterwards."""
_EXPECTED = ("08", "53", "57")
"""Classes of SQLSTATE: connection, resources, intervention. Anything else is a fault of ours."""


def is_expected(error: Exception) -> bool:
    """Whether a client must reckon with an error while a server is killed, full or restarted."""
    cause = error.__cause__ if isinstance(error, PysqlboxError) else error
    if not isinstance(cause, psycopg.Error):
        return False
    return cause.sqlstate is None or cause.sqlstate.startswith(_EXPECTED)


def key_of(row: Row) -> str:
    """The key of a message: every payload of these tests is one."""
    return str(row["payload"])


@dataclass(slots=True)
class Client:
    """A connection that is made again when it is lost."""

    url: str
    _session: Session | None = None

    def session(self) -> Session:
        """The connection, open."""
        if self._session is None:
            connection = connect(self.url)
            connection.prepare_threshold = None  # a pooler need not carry them along
            self._session = Session("postgres", SCHEMA, connection)
        return self._session

    def drop(self) -> None:
        """Closes it, whatever state it is in."""
        if self._session is not None:
            with contextlib.suppress(psycopg.Error):
                self._session.connection.close()
            self._session = None


class Producer:
    """Sends one transaction after another; those whose commit was not answered it does not send again."""

    def __init__(self, client: Client, account: Account, name: str, seed: int) -> None:
        self._client = client
        self._account = account
        self._name = name
        self._numbers = itertools.count()
        self._random = random.Random(f"{seed}-{name}")

    def step(self) -> None:
        """One transaction."""
        if self._account.backlog() > BACKLOG:
            time.sleep(0.01)
            return
        session = self._client.session()
        pick = self._random
        box = pick.choice(BOXES)
        size = pick.choice((1, 1, 1, 2, 8, 20, 260))
        keys = [f"{box}-{self._name}-{next(self._numbers)}" for _ in range(size)]
        asked = False
        try:
            session.sql("INSERT INTO public.orders (key, box) SELECT unnest(%s::text[]), %s", keys, box)
            if size == 1:
                session.call(f"{box}_enqueue", **self._record(box, keys[0]))
            elif size > 250 and box == "outbox":
                session.call("outbox_enqueue_payloads", topic="t", payloads=keys)
            else:
                records = [self._record(box, key) for key in keys]
                session.call(f"{box}_enqueue_many", messages=json_text(records))
            if pick.random() < 0.1:
                time.sleep(pick.random() * 0.1)
            if pick.random() < 0.05:
                self._account.failed(keys, asked_to_commit=False)
                session.rollback()
                return
            asked = True
            session.commit()
        except (PysqlboxError, psycopg.Error):
            self._account.failed(keys, asked_to_commit=asked)
            raise
        self._account.sent(keys)

    def _record(self, box: str, key: str) -> Row:
        pick = self._random
        record: Row = {"topic": pick.choice("tuv"), "payload": key}
        if box == "inbox":
            record |= {"source": "s", "message_id": key}
        kind = pick.random()
        if kind < 0.3:
            # One producer to a group, so that the order of its ids is that of its commits.
            record["group_id"] = f"{self._name}-{pick.randrange(4)}"
        elif kind < 0.4:
            record["priority"] = pick.choice((-5, 5))
        elif kind < 0.5:
            record["due_at"] = datetime.now(UTC) + timedelta(milliseconds=pick.randrange(300))
        return record


@dataclass(slots=True)
class Held:
    """What a worker holds of a box: to be acknowledged, and to be given back."""

    acks: list[Row]
    backs: list[Row]
    is_repeated: bool = False
    """Whether its settlement was tried before and not answered."""


class Worker:
    """Claims and settles; what it holds when its connection breaks it settles on the next one."""

    def __init__(self, client: Client, account: Account, seed: int) -> None:
        self._client = client
        self._account = account
        self._random = random.Random(seed)
        self._owner = UUID(int=self._random.getrandbits(128) | 1)
        self._held: dict[str, Held] = {}

    def step(self) -> int:
        """One round over the boxes; answers how many messages it met."""
        return sum(self.work(box) for box in BOXES)

    def work(self, box: str, batch: int | None = None, *, all_done: bool = False) -> int:
        """Settles what it holds of a box, if anything, else claims; answers how many messages that were."""
        held = self._held.get(box)
        if held is None:
            rows = self._claim(box, batch or self._random.choice((1, 5, 20, 100)))
            if not rows:
                return 0
            self._take(box, rows, all_done=all_done)
        held = self._held[box]
        count = len(held.acks) + len(held.backs)
        self._settle(box, held, claim=not all_done and self._random.random() < 0.5)
        return count

    def _claim(self, box: str, batch: int) -> list[Row]:
        session = self._client.session()
        rows = session.call(f"{box}_claim", owner_token=self._owner, lease_seconds=LEASE, batch_size=batch)
        session.commit()
        return rows

    def _take(self, box: str, rows: list[Row], *, all_done: bool = False) -> None:
        keys = [key_of(row) for row in rows]
        self._account.handed(self._owner, keys)
        held = Held([], [])
        given_back: set[str | None] = set()
        for row in rows:
            # Whoever gives back a member of a group and does the next would break the order himself.
            is_back = not all_done and (
                row["group_id"] in given_back or (row["attempt"] < 3 and self._random.random() < 0.05)
            )
            if is_back and row["group_id"] is not None:
                given_back.add(row["group_id"])
            (held.backs if is_back else held.acks).append(row)
        self._held[box] = held

    def _settle(self, box: str, held: Held, *, claim: bool) -> None:
        session = self._client.session()
        keys = [key_of(row) for row in held.acks]
        rows = held.acks + held.backs
        if held.is_repeated and self._has_happened(session, keys):
            self._over(box, held, keys)
            return
        good = {
            row["id"]
            for row in session.call(
                f"{box}_extend", owner_token=self._owner, ids=ids(rows), lease_seconds=LEASE
            )
        }
        if good != set(ids(rows)):
            # Another server, or another clock: somebody else has them now, or will.
            session.rollback()
            self._account.returned(map(key_of, rows))
            del self._held[box]
            if held.is_repeated and keys and not held.backs and good:
                self._account.tear(
                    f"{box}: a settlement that was all or nothing left {len(good)} of {len(rows)}"
                )
            return
        self._account.returned(map(key_of, rows))
        session.sql(
            "INSERT INTO public.effects (key, box, id, group_id)"
            " SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[])",
            keys,
            [box] * len(keys),
            ids(held.acks),
            [row["group_id"] for row in held.acks],
        )
        more: list[Row] = []
        if held.backs or claim:
            outcomes = [{"ids": ids(held.acks), "result": "ack"}] if held.acks else []
            outcomes += [
                {"id": row["id"], "result": self._random.choice(("abandon", "release")), "error": "again"}
                for row in held.backs
            ]
            more = session.call(
                f"{box}_settle",
                owner_token=self._owner,
                outcomes=json_text(outcomes),
                claim_batch=20 if claim else 0,
                lease_seconds=LEASE,
            )
        else:
            affected = session.value(f"{box}_ack", owner_token=self._owner, ids=ids(held.acks))
            assert affected == len(keys), f"{box}: extend knew {len(keys)} leases, ack {affected}"
        held.is_repeated = True
        try:
            session.commit()
        except psycopg.Error:
            self._account.no_answer()
            raise
        self._over(box, held, keys)
        if more:
            self._take(box, more)

    def _has_happened(self, session: Session, keys: list[str]) -> bool:
        """Whether the settlement that was not answered took place."""
        rows = session.sql("SELECT count(*) AS n FROM public.effects WHERE key = ANY (%s)", keys)
        found = int(str(rows[0]["n"]))
        if found not in (0, len(keys)):
            self._account.tear(f"{found} effects of {len(keys)} that were one transaction")
        return found == len(keys) > 0

    def _over(self, box: str, held: Held, keys: list[str]) -> None:
        self._account.done(keys)
        self._account.returned(map(key_of, held.backs))
        del self._held[box]


def move_marks(server: Server, load: Load) -> None:
    """Has every mark move as far as it may, which workers do by chance and now and then."""
    for _ in range(3):
        for box in BOXES:
            server.sql(f"SELECT {SCHEMA}._{box}_tick()")
        load.hold(20)


@dataclass(slots=True)
class Load:
    """Threads of producers and workers on one server, from entering the block to its end."""

    url: str
    account: Account = field(default_factory=Account)
    producers: int = 2
    workers: int = 2
    seed: int = 1
    expects: Callable[[Exception], bool] = is_expected
    refusals: int = 0
    """Errors that clients had to reckon with."""
    seconds: float = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _faults: list[str] = field(default_factory=list)
    _since: float = 0

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        for number in range(self.producers):
            producer_client = Client(self.url)
            producer = Producer(producer_client, self.account, f"{self.seed}p{number}", self.seed)
            self._begin(producer.step, producer_client)
        for number in range(self.workers):
            client = Client(self.url)
            self._begin(Worker(client, self.account, self.seed * 100 + number).step, client)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over.is_set():
            return
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        self.seconds += time.monotonic() - self._since
        if error is None:
            self._raise()
            assert not any(thread.is_alive() for thread in self._threads), "a client hangs"

    def stop(self) -> None:
        """Ends it before the end of its block."""
        self.__exit__(None, None, None)

    def hold(self, messages: int, seconds: float = 0) -> None:
        """Waits until so many more messages are sent and settled, and so much time has passed."""
        since = time.monotonic()
        sent, settled = len(self.account.confirmed), len(self.account.settled)
        while (
            time.monotonic() - since < seconds
            or len(self.account.confirmed) - sent < messages
            or len(self.account.settled) - settled < messages
        ):
            self._raise()
            assert time.monotonic() - since < seconds + PATIENCE, "the load does not go on"
            time.sleep(0.01)

    def hand_out(self, keys: set[str], messages: int) -> None:
        """Waits until all of these have come out of a claim, among at most so many other messages."""
        settled = len(self.account.settled)
        while missing := keys - self.account.seen:
            self._raise()
            more = len(self.account.settled) - settled
            assert more < messages, f"{len(missing)} of {len(keys)} did not come, {more} others did"
            time.sleep(0.01)

    def _begin(self, step: Callable[[], Any], client: Client) -> None:
        thread = threading.Thread(target=self._run, args=(step, client), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, step: Callable[[], Any], client: Client) -> None:
        try:
            while not self._over.is_set():
                try:
                    step()
                except (PysqlboxError, psycopg.Error) as error:
                    if not self.expects(error):
                        raise
                    self.refusals += 1
                    client.drop()
                    self._over.wait(0.05)
        except BaseException:  # noqa: BLE001 - a thread must not die unheard; every error fails the test
            self._faults.append(traceback.format_exc())
        finally:
            client.drop()

    def _raise(self) -> None:
        assert not self._faults, f"{len(self._faults)} clients failed; the first:\n{self._faults[0]}"
