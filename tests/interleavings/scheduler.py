"""Runs two or three sessions, statement by statement, through every order they can come in.

A protocol is a few sessions with a few statements each. One thread sends a statement and waits for its
answer, or until the server says that it waits for another session's lock; then the others go on, and it
with them as soon as it is let. So every order that can happen is met, each once: whichever session can go
on is tried at each step. Sessions that are alike are not told apart. A statement that waits for somebody
for whom it must not wait has broken the contract, and so has any error that the statement does not name.

Whenever something was committed one snapshot of the tables must fit the rules of `invariants` (each message
in exactly one place, a group that waits has a ticket, counters are exact); claims may hand out nothing that
another holds, and no group's member before those in front of it. At the end everything is claimed until
nothing is left: whatever is stuck, was lost or comes twice shows then.

Statements of a routine are a session's steps too where a protocol names stops: then the routine is deployed
with a lock to wait for in these places, and whoever comes there is let on at its turn.

PostgreSQL only: there a session that waits can be seen from outside (`pg_blocking_pids`), and locks are let
go before a commit is answered. Babelfish, which the T-SQL tests run on, lets one claim at a time run and
keeps its application locks from that view; what T-SQL promises is tested by open sessions in
`tests.concurrency`.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from tests.interleavings import places
from tests.interleavings.link import Link, Row, StatementError
from tests.interleavings.world import BrokenError, World, as_text, owner_of
from tests.support.database import Database

ORDER_VARIABLE = "PYSQLBOX_INTERLEAVING"
"""Names one order to run again, as a failure prints it."""

_GLANCE = 0.004
"""Seconds after which it is worth asking whether a statement waits for a lock."""
_PATIENT = 0.5
"""Seconds that a statement may look as if it waited though it must not: the machine may be busy."""
_DRAINER = "drainer"
_ROUNDS = 20
_LOOKS = 4
_PATIENCE = 300
"""Claims after which even what only a patrol finds has come: a lease that was committed after its time."""
_SHRUNK_EVERY = 200
"""Orders after which the tables are made small again, for a patrol takes as long as they have pages."""
_STOPS = 40
"""More than a session meets in one order."""
_LATER = 2000
"""Seconds beyond every lease and delay of a protocol, short of the hour for which join.wait is parked."""
_SETTINGS = (
    "SET statement_timeout = '100s'; SET deadlock_timeout = '100ms'; SET client_min_messages = 'error';"
    " SET lock_timeout = '80s'; SET jit = off"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a session."""

    text: str
    """As a failure prints it."""
    sql: Callable[[World, str], str | None]
    """The statement, by what is known so far; none if there is nothing to do."""
    then: Callable[[World, str, list[Row]], None] | None = None
    """What its answer means."""
    may_wait_for: frozenset[str] = frozenset()
    """The kinds of statements, in another session's open transaction, for which this one may wait."""
    may_wait_for_key: frozenset[str] = frozenset()
    """The same in an inbox, whose messages have keys that the callers bring."""
    about: frozenset[str] = frozenset()
    """The messages that it is about, by name; none if that shows only when it runs."""
    errors: frozenset[str] = frozenset()
    """The SQLSTATEs that are an answer too."""
    looks: bool = False
    """Whether the answer is judged by what was committed before."""
    ending: str | None = None
    """commit, rollback, savepoint or back, for a statement of that kind."""
    alone: bool = False
    """Whether it commits at once, as a transaction of its own."""

    @property
    def kind(self) -> str:
        """The first word."""
        return self.text.split()[0]


@dataclass(frozen=True, slots=True)
class Protocol:
    """Sessions, what comes before them, and the box they work on."""

    name: str
    sessions: Mapping[str, Sequence[Step]]
    before: Sequence[tuple[str, Step]] = ()
    """Statements, each with its session, that come first and in this order."""
    box: str = "outbox"
    alike: Sequence[frozenset[str]] = ()
    """Sessions with the same statements, of which any may come first."""
    stops: Sequence[tuple[str, str]] = ()
    """Where in routines the sessions stop, so that others come between: files, and the texts before which."""
    waits: frozenset[str] = frozenset()
    """Kinds of statements that take the very messages which others settle: these may wait for them."""


@dataclass(slots=True)
class _Session:
    name: str
    link: Link
    steps: Sequence[Step]
    at: int = 0
    running: Step | None = None
    is_open: bool = False
    is_seeded: bool = False
    ahead: int = 0
    """How many statements were sent before the step's own."""
    is_lost: bool = False
    """Whether an error has ended the transaction; what is left of it does nothing."""
    stops: int = 0
    """How often it has stopped inside of a routine since the order began."""
    is_stopped: bool = False
    commits: int = 0
    """How many commits there had been when the statement that runs was sent."""
    done: list[Step] = field(default_factory=list)
    """The statements of the open transaction."""


class Scheduler:
    """The sessions of one protocol on one database, kept from order to order."""

    def __init__(self, db: Database, protocol: Protocol) -> None:
        """Connects."""
        self.protocol = protocol
        self._observer = Link(db, _SETTINGS)
        self._reset = places.reset_text(db, protocol.box)
        self._shrink = places.shrink_text(db, protocol.box)
        self._begun = 0
        box = protocol.box
        self._observer.ask(f"PREPARE check_{box} AS {places.check_text(box)}")
        self._observer.ask(f"PREPARE check_{box}_drained AS {places.check_text(box, drained=True)}")
        names = {*protocol.sessions, *(name for name, _ in protocol.before)}
        self._links = {name: Link(db, _SETTINGS) for name in sorted(names)}
        self._sessions: dict[str, _Session] = {}
        self._observer.ask(f"PREPARE claimable AS {places.claimable_text(box)}")
        self._observer.ask(f"PREPARE messages AS {places.messages_text(box)}")
        for link in (*self._links.values(), self._observer):
            link.ask(f"PREPARE unfinished AS {places.unfinished_text(box)}")
        # Whoever comes to a stop asks for a lock that the gate has, and goes on once the gate lets it go.
        self._gate = Link(db)
        if protocol.stops:
            for link in (*self._links.values(), self._observer):
                link.ask("CREATE TEMPORARY SEQUENCE stops")
        self._by_pid = {link.pid: name for name, link in self._links.items()}
        self._trace: list[str] = []
        self._order: list[str] = []
        self._world = World(box, self._observer)
        self._commits = 0

    def close(self) -> None:
        """Ends all sessions."""
        for link in (*self._links.values(), self._observer, self._gate):
            link.close()

    def run(self, choose: Callable[[list[str]], str]) -> None:
        """One order: at each step the choice among the sessions that can go on."""
        self._begin()
        try:
            for name, step in self.protocol.before:
                self._start(self._sessions[name], step)
                if self._sessions[name].running is not None:
                    raise BrokenError(f"{step.text} waits before the others have begun")
            self._shut_gate()
            while able := self._able():
                name = choose(able)
                self._order.append(name)
                session = self._sessions[name]
                if session.is_stopped:
                    self._go_on(session)
                else:
                    session.at += 1
                    self._start(session, session.steps[session.at - 1])
            if waiting := [s.name for s in self._sessions.values() if s.running is not None]:
                raise BrokenError(f"{waiting} wait for ever")
            self._finish()
        except (BrokenError, StatementError) as error:
            raise BrokenError(self._report(error)) from error

    def _begin(self) -> None:
        if self._begun % _SHRUNK_EVERY == 0:
            self._observer.ask(self._shrink)
        self._begun += 1
        self._observer.ask(f"SELECT setseed(0.5); {self._reset}")
        self._world = World(self.protocol.box, self._observer)
        self._commits = 0
        self._trace, self._order = [], []
        self._sessions = {
            name: _Session(name, link, self.protocol.sessions.get(name, ()))
            for name, link in self._links.items()
        }

    def _shut_gate(self) -> None:
        if self.protocol.stops:
            for link in self._links.values():
                link.ask("SELECT setval('pg_temp.stops', 1, false)")
            pids = ", ".join(f"({link.pid})" for link in self._links.values())
            self._gate.ask(
                "SELECT pg_advisory_unlock_all(); SELECT pg_advisory_lock(s.pid, n)"
                f" FROM (VALUES {pids}) AS s (pid) CROSS JOIN generate_series(1, {_STOPS}) AS n"
            )

    def _go_on(self, session: _Session) -> None:
        """From a stop inside of a routine to the next, or to the routine's end."""
        self._trace.append(f"{session.name} goes on")
        session.is_stopped = False
        self._gate.ask(f"SELECT pg_advisory_unlock({session.link.pid}, {session.stops})")
        self._wait_for(session)

    def _able(self) -> list[str]:
        able = [
            s.name
            for s in self._sessions.values()
            if s.is_stopped or (s.running is None and s.at < len(s.steps))
        ]
        for class_ in self.protocol.alike:
            fresh = sorted(n for n in able if n in class_ and self._sessions[n].at == 0)
            able = [name for name in able if name not in fresh[1:]]
        return able

    def _start(self, session: _Session, step: Step) -> None:
        world = self._world
        self._trace.append(f"{session.name}: {step.text}")
        if session.is_lost and step.ending != "savepoint":
            session.is_lost = step.ending not in ("commit", "rollback")
            return
        text = step.sql(world, session.name)
        if text is None or (step.ending and not session.is_open and step.ending != "savepoint"):
            return
        if step.looks:
            text = f"EXECUTE unfinished; {text}"
        session.ahead = 0
        if not session.is_open:
            if not step.alone:
                text = f"BEGIN; {text}"
                session.ahead += 1
            world.begin(session.name)
            session.is_open = True
        if not session.is_seeded:
            # Claims look after the low marks by chance; with a seed an order comes again as it was.
            text = f"SELECT setseed(0.5); {text}"
            session.ahead += 1
            session.is_seeded = True
        session.done.append(step)
        session.running = step
        session.commits = self._commits
        session.link.send(text)
        self._wait_for(session)

    def _wait_for(self, session: _Session) -> None:
        """Until the session has its answer, or waits for another; then what waits for it may go on too."""
        while not session.link.is_answered(_GLANCE):
            if (blockers := self._blockers(session)) and self._is_waiting(session, blockers):
                return
        self._end(session)
        # One that was let go may let others go in turn.
        for other in self._sessions.values():
            if other.running is not None and not other.is_stopped:
                self._wait_for(other)

    def _blockers(self, session: _Session) -> list[str]:
        rows = self._observer.ask(f"SELECT unnest(pg_blocking_pids({session.link.pid})) AS pid")
        pids = {int(str(row["pid"])) for row in rows}
        if self._gate.pid in pids:
            session.is_stopped = True
            session.stops += 1
            self._trace.append(f"   ({session.name} stops)")
            return [session.name]
        return sorted(self._by_pid[pid] for pid in pids)

    def _is_waiting(self, session: _Session, blockers: list[str]) -> bool:
        """Whether it really waits for these; fails if it must not."""
        step = session.running
        assert step is not None
        if session.is_stopped:
            return True
        for name in blockers:
            done = self._sessions[name].done
            if not any(self._may_wait(step, other) for other in done):
                # A claim tries for a millisecond to enter a new group, and goes on without; that is no wait.
                if session.link.is_answered(_PATIENT):
                    return False
                texts = ", ".join(other.text for other in done)
                raise BrokenError(f"{session.name}: {step.text} waits for {name} ({texts})")
        note = f"   ({session.name} waits for {', '.join(blockers)})"
        if self._trace[-1] != note:
            self._trace.append(note)
        return True

    def _may_wait(self, step: Step, other: Step) -> bool:
        """Whether both are about the same message, and of kinds that take turns at one."""
        kinds = step.may_wait_for | (step.may_wait_for_key if self.protocol.box == "inbox" else frozenset())
        if step.may_wait_for | step.may_wait_for_key and other.kind in self.protocol.waits:
            return True
        return other.kind in kinds and (not step.about or not other.about or bool(step.about & other.about))

    def _end(self, session: _Session) -> None:
        step = session.running
        assert step is not None
        session.running = None
        world = self._world
        try:
            answers = session.link.answers()
        except StatementError as error:
            if error.state not in step.errors:
                raise
            self._trace[-1] += f"   → {error.state}"
            if not step.alone:
                session.link.ask("ROLLBACK")
            world.go_back(session.name, keep=False)
            session.is_open, session.is_lost, session.done = False, not step.alone, []
            return
        rows = answers[-1]
        if step.looks:
            world.unfinished = answers[session.ahead]
            # What was there at the beginning says nothing about the end if others have committed meanwhile.
            world.is_recent = session.commits == self._commits
        if step.then is not None:
            step.then(world, session.name, rows)
        if rows and not step.ending:
            self._trace[-1] += f"   → {[list(row.values())[:1][0] for row in rows]}"
        if step.ending == "savepoint":
            world.begin(session.name)
        elif step.ending == "back":
            world.go_back(session.name, keep=True)
        elif step.ending == "rollback":
            world.go_back(session.name, keep=False)
            session.is_open, session.done = False, []
        elif step.ending == "commit" or step.alone:
            world.commit(session.name)
            self._commits += 1
            session.is_open, session.done = False, []
            if self._order:
                world.check()

    def _finish(self) -> None:
        """Everything is over: whatever waits must come, in order and once, and the accounts be right."""
        world, observer = self._world, self._observer
        self._gate.ask("SELECT pg_advisory_unlock_all()")
        for session in self._sessions.values():
            if session.is_open:
                self._start(session, Step("rollback", lambda _w, _s: "ROLLBACK", ending="rollback"))
        world.check()
        by_topic = zlib.crc32(", ".join(self._order).encode()) % 2 == 1
        # First what is due now, then what is due later, or leased, and at last what a pause holds up.
        self._drain(self._stuck, by_topic=by_topic)
        self._advance(_LATER)
        if any(step.kind == "pause" for steps in self.protocol.sessions.values() for step in steps):
            self._drain(self._stuck, by_topic=by_topic)
            for topic in sorted(world.topics):
                observer.ask(world.call(f"{world.box}_resume", topic=topic))
        self._drain(self._left, by_topic=by_topic)

    def _stuck(self) -> str:
        """What should have been handed out by now."""
        rows = self._observer.ask("EXECUTE claimable")
        return f"stuck: {[row['id'] for row in rows]}" if rows else ""

    def _left(self) -> str:
        """What should not be left, once everything has been claimed; else whether the accounts are right."""
        world, observer = self._world, self._observer
        observer.send(f"EXECUTE check_{world.box}_drained; EXECUTE messages")
        broken, messages = observer.answers()
        if not broken:
            self._account(messages)
        return as_text(broken)

    def _drain(self, what_is_left: Callable[[], str], *, by_topic: bool) -> None:
        """Claims, all or topic by topic, until nothing is left, at once or after some looks."""
        topics = [[topic] for topic in sorted(self._world.topics)] if by_topic else [None]
        for look in range(_LOOKS + _PATIENCE):
            rounds = 0
            while sum(map(self._take, topics)):
                rounds += 1
                if rounds > _ROUNDS:
                    raise BrokenError(f"after {_ROUNDS} rounds there is still something to claim")
            if look < _LOOKS:
                left = what_is_left()
                if not left:
                    return
                self._advance(1)
        if left := what_is_left():
            raise BrokenError(left)

    def _take(self, topics: list[str] | None) -> int:
        world, observer = self._world, self._observer
        owner = owner_of(_DRAINER)
        text = world.call(
            f"{world.box}_claim", owner_token=owner, lease_seconds=600, batch_size=100, topics=topics
        )
        observer.send(f"EXECUTE unfinished; {text}")
        world.unfinished, rows = observer.answers()
        world.is_recent = True
        ids = [int(str(row["id"])) for row in rows]
        if not ids:
            return 0
        world.handed(_DRAINER, ids)
        (row,) = observer.ask(world.call(f"{world.box}_ack", owner_token=owner, ids=ids))
        if row["affected"] != str(len(ids)):
            raise BrokenError(f"an ack of {ids}, just claimed, affects {row['affected']}")
        self._trace.append(f"{_DRAINER}: {ids}")
        world.of(_DRAINER).gains["done"] += len(ids)
        world.commit(_DRAINER)
        return len(ids)

    def _account(self, messages: Sequence[Row]) -> None:
        """As many are done as were ended, and nothing that was sent has gone without a reason."""
        world = self._world
        done = sum(row["done"] == "t" for row in messages)
        if done != world.gains["done"]:
            raise BrokenError(f"{done} messages are done, but {world.gains['done']} were ended")
        lost = set(world.committed) - {int(str(row["id"])) for row in messages}
        if len(lost) != world.gains["gone"]:
            raise BrokenError(
                f"gone: {sorted(lost)}, though {world.gains['gone']} were replaced or discarded"
            )

    def _advance(self, seconds: float) -> None:
        self._world.clock += seconds
        self._observer.ask(self._world.call("_set_clock", offset_seconds=self._world.clock))

    def _report(self, error: Exception) -> str:
        lines = "\n".join(f"  {line}" for line in self._trace)
        order = ", ".join(self._order)
        return (
            f"{error}\n{lines}\n"
            f"again: {ORDER_VARIABLE}='{self.protocol.name}: {order}' pytest tests/interleavings"
        )


def count(protocol: Protocol) -> int:
    """How many orders there are if nothing ever waits."""
    names = sorted(protocol.sessions)

    @cache
    def orders(left: tuple[int, ...]) -> int:
        able = [place for place, steps in enumerate(left) if steps]
        for class_ in protocol.alike:
            fresh = [p for p in able if names[p] in class_ and left[p] == len(protocol.sessions[names[p]])]
            able = [place for place in able if place not in fresh[1:]]
        taken = (tuple(n - (place == one) for place, n in enumerate(left)) for one in able)
        return sum(map(orders, taken)) if able else 1

    return orders(tuple(len(protocol.sessions[name]) for name in names))


def exhaust(db: Database, protocol: Protocol) -> int:
    """Runs every order; answers how many there were."""
    scheduler = Scheduler(db, protocol)
    try:
        choices = _Choices()
        runs = 0
        while not runs or choices.go_on():
            scheduler.run(choices.choose)
            runs += 1
        return runs
    finally:
        scheduler.close()


class _Choices:
    """Choices, depth first: at each step the next session, as long as one was not tried there."""

    def __init__(self) -> None:
        self._path: list[tuple[list[str], int]] = []
        self._depth = 0

    def choose(self, able: list[str]) -> str:
        """What the path says, or beyond its end the first."""
        if self._depth == len(self._path):
            self._path.append((able, 0))
        before, index = self._path[self._depth]
        assert before == able, "an order does not come again as it was"
        self._depth += 1
        return able[index]

    def go_on(self) -> bool:
        """Turns to the next path, after one was run to its end; false if that was the last."""
        assert self._depth == len(self._path), "an order has ended sooner than before"
        self._depth = 0
        while self._path:
            able, index = self._path.pop()
            if index + 1 < len(able):
                self._path.append((able, index + 1))
                return True
        return False


def sample(db: Database, protocol: Protocol, runs: int, seed: int = 11) -> int:
    """Runs some orders, the same in every run; answers how many different ones."""
    scheduler = Scheduler(db, protocol)
    chance = random.Random(seed)
    met: set[tuple[str, ...]] = set()
    try:
        for _ in range(runs):
            order: list[str] = []

            def choose(able: list[str], order: list[str] = order) -> str:
                order.append(chance.choice(able))
                return order[-1]

            scheduler.run(choose)
            met.add(tuple(order))
        return len(met)
    finally:
        scheduler.close()


def run_again(db: Database, protocol: Protocol, order: Sequence[str]) -> None:
    """Runs one order again, as far as it goes; then whoever can goes on."""
    rest = iter(order)
    scheduler = Scheduler(db, protocol)
    try:
        scheduler.run(lambda able: next(rest, able[0]))
    finally:
        scheduler.close()
