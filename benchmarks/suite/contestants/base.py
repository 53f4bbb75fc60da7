"""What a contestant at the SQL level has: a schema, and loops of statements that client processes run."""

from __future__ import annotations

import contextlib
import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import psycopg

from benchmarks.queue.contenders import Connection, Contender
from benchmarks.suite.runner import Contestant, UnavailableError
from benchmarks.suite.server import Cost, Lab

Ability = Literal[
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
]
"""`parallel`: several consumers share one queue; without it there is one at a time. `topics`: consumers can
ask for several of them; `pausing`: one can be held back for all."""

SIZES = """
    SELECT c.oid::regclass::text, pg_total_relation_size(c.oid)
    FROM pg_class AS c
    INNER JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'm') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"""
LIMIT = """
    DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET statement_timeout = ''120s''', current_database());
    END $$"""
"""No statement goes on for ever, so no measurement does."""
FILL_STEP = 1000
"""Messages in one statement where a backlog is filled."""


ATTEMPT = 8
"""Where a claim of pysqlbox answers the attempts so far."""


@dataclass(frozen=True)
class Route:
    """A route through a queue that is not the plain one; `needs`: what a contestant must have for it.

    All messages have this priority, are in this group and of these topics by turns. `asked`: consumers name
    the topics. `others`: every second message of the backlog is of that topic instead, which nobody asks
    for, or which is paused (`paused`).
    """

    name: str
    needs: Ability
    priority: int = 0
    group: str = ""
    topics: tuple[str, ...] = ("orders",)
    asked: bool = False
    others: str = ""
    paused: bool = False

    @property
    def backlog_topics(self) -> tuple[str, ...]:
        """The topics of the backlog's messages, by turns."""
        return tuple(name for topic in self.topics for name in (topic, self.others) if name)


@dataclass(frozen=True)
class Load:
    """A backlog: `count` messages of `payload` bytes.

    `groups`: they are in so many FIFO groups by turns. `due_seconds`: every second one is delayed until so
    long after the filling began. `batch`: what consumers take at once, for a queue that cuts its batches as
    messages come in. `joins`: they are steps of so many joins, a batch of each by turns. `route`: they are
    such as take it.
    """

    count: int
    payload: int = 200
    groups: int = 0
    due_seconds: float = 0.0
    batch: int = 500
    joins: int = 0
    route: Route | None = None


def text_of(size: int) -> str:
    """So many characters that neither repeat nor compress, the same in every run; JSON needs no escapes."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join(random.Random(size).choices(letters, k=size))


class SqlContestant(Contestant):
    """One way to put messages in and take them out.

    Contenders are what client processes run: their `session` answers a step of the loop. `family`: those of
    one family fill the same databases. `remaining` is SQL for the number of messages that are not finished,
    or None where that cannot be told. `keeps_in_hand`: a batch is finished by the step after its own.
    `sends_alike`: it puts messages in as the one of its family's name does, so only that one is asked to.
    `most`: where its backlogs end, if it takes too long to fill them. `channel`: where it notifies.
    """

    can: ClassVar[frozenset[Ability]]
    family: str
    remaining: str | None = None
    keeps_in_hand: bool = False
    sends_alike: bool = False
    most: int | None = None
    channel: str | None = None

    @contextlib.contextmanager
    def place(self, lab: Lab, load: Load | None = None) -> Iterator[str]:
        """A private database with the schema, and this backlog."""
        with lab.database(self._place_name(load), lambda url: self.build(url, load)) as url:
            with connect(url) as connection:
                connection.execute(LIMIT)
            yield url

    def load(self, load: Load) -> Load:
        """The backlog that is asked for, or what of it this one can have in time."""
        return load

    def build(self, url: str, load: Load | None) -> None:
        """Schema and backlog into an empty database."""
        self.create(url)
        if load:
            self.fill(url, load)
            if load.joins:
                self.attach(url, load)

    def _place_name(self, load: Load | None) -> str:
        if load is None:
            return f"{self.family} empty"
        what = [load.count, load.payload, load.groups, round(load.due_seconds), load.joins]
        route = f" {load.route.name}" if load.route else ""
        return f"{self.family} {'_'.join(map(str, what))}{route}"

    @contextlib.contextmanager
    def metered(self, lab: Lab) -> Iterator[Cost | None]:
        """What the server spends meanwhile; None where that cannot be read."""
        with lab.metered() as cost:
            yield cost

    def count_remaining(self, url: str) -> int | None:
        """How many messages are not finished."""
        if self.remaining is None:
            return None
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(self.remaining.encode()).fetchone()
        return int(row[0]) if row else 0

    def sizes(self, url: str) -> dict[str, int]:
        """Bytes of its tables, each with indexes and all."""
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute(SIZES).fetchall()
        return {str(name): int(size) for name, size in rows}

    def maintain(self, url: str) -> None:
        """What its documentation wants to be called now and then."""

    @abstractmethod
    def create(self, url: str) -> None:
        """The schema in an empty database."""

    def fill(self, url: str, load: Load) -> None:  # noqa: ARG002 - not all can
        """A backlog."""
        raise UnavailableError(f"{self.name} has no backlog")

    def attach(self, url: str, load: Load) -> None:  # noqa: ARG002 - not all can
        """Make a backlog's messages steps of joins."""
        raise UnavailableError(f"{self.name} has no joins")

    def single(self, url: str, payload: int) -> Contender:  # noqa: ARG002 - the interface
        """One message a call, each a transaction of its own."""
        raise UnavailableError(f"{self.name} has no single enqueue")

    def bulk(self, url: str, payload: int, records: int) -> Contender:  # noqa: ARG002 - the interface
        """Many messages a call."""
        raise UnavailableError(f"{self.name} has no bulk enqueue")

    def drain(self, url: str, batch: int) -> Contender:  # noqa: ARG002 - the interface
        """Take a batch, finish it."""
        raise UnavailableError(f"{self.name} takes nothing out")

    def retry(self, url: str, batch: int) -> Contender:  # noqa: ARG002 - the interface
        """Take a batch, finish half of it and what was tried before, give the rest back for another try.

        Its step answers how many it finished, and -1 for a batch of which nothing was finished.
        """
        raise UnavailableError(f"{self.name} has no retries")

    def grouped(self, url: str, batch: int, groups: int) -> Contender:  # noqa: ARG002 - the interface
        """Take a batch by the rules of FIFO groups, of which there are so many; finish it."""
        raise UnavailableError(f"{self.name} has no groups")

    def route_bulk(self, url: str, payload: int, records: int, route: Route) -> Contender:  # noqa: ARG002 - the interface
        """Many messages a call, such as take this route."""
        raise UnavailableError(f"{self.name} has no {route.needs}")

    def route_drain(self, url: str, batch: int, route: Route) -> Contender:  # noqa: ARG002 - the interface
        """Take a batch of them, finish it."""
        raise UnavailableError(f"{self.name} has no {route.needs}")


def connect(url: str) -> Connection:
    """A connection in autocommit for setting things up."""
    return psycopg.connect(url, autocommit=True)


def steps_of(load: Load) -> Iterator[tuple[int, int]]:
    """The first and the last number of each statement of a filling; big payloads go in smaller steps."""
    size = max(1, min(FILL_STEP, 8_000_000 // load.payload))
    for first in range(0, load.count, size):
        yield first, min(first + size, load.count) - 1


def halves(
    rows: Sequence[tuple[Any, ...]], attempt: int = ATTEMPT, before: int = 0
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Those to finish, and those to give back: every second one, the first time (`before` attempts)."""
    again = [row for row in rows if row[0] % 2 and row[attempt] == before]
    good = [row for row in rows if not row[0] % 2 or row[attempt] != before]
    return good, again
