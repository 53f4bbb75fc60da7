"""What a run of one order knows: the messages by their names, who holds what, and what must come of it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from tests.interleavings.link import Link, Row


class BrokenError(AssertionError):
    """A rule that an order broke."""


def owner_of(session: str) -> str:
    """The owner token of a session; "somebody (other hand)" has the token of somebody."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, session.partition(" (")[0]))


def literal(value: object) -> str:
    """A value as SQL writes it; what is `Raw` stands as it is."""
    if value is None:
        return "NULL"
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, list | tuple):
        kind = "text" if value and isinstance(value[0], str) else "bigint"
        return f"ARRAY[{', '.join(map(literal, value))}]::{kind}[]"
    return "'" + str(value).replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Raw:
    """An expression in place of a value."""

    text: str


def soon(seconds: float) -> Raw:
    """So many seconds from now, by the schema's clock."""
    return Raw(f"{{schema}}._now() + interval '{seconds} seconds'")


def as_text(broken: Sequence[Row]) -> str:
    """Rules that are broken, with some of what breaks them."""
    return "; ".join(f"{row['rule']}: {row['rows']}" for row in broken)


@dataclass(frozen=True, slots=True)
class Move:
    """A schedule that was set, fired, skipped or stopped."""

    name: str
    kind: str
    at: str | None
    """The planned time that it was moved on from."""
    to: str | None
    """Where it stands since; none if it does not fire."""


@dataclass(slots=True)
class Standing:
    """What a session has done, as far as a rollback would undo it."""

    held: list[int] = field(default_factory=list)
    """What it thinks it holds, in the order of its claims."""
    taken: list[int] = field(default_factory=list)
    """What its open transaction was handed."""
    gains: Counter[str] = field(default_factory=Counter)
    """Messages that its open transaction has ended, by how."""
    created: list[int] = field(default_factory=list)
    """Messages that its open transaction has sent."""
    moves: list[Move] = field(default_factory=list)
    """What its open transaction has done to schedules."""


@dataclass(slots=True)
class World:
    """One run of one order."""

    box: str
    observer: Link
    ids: dict[str, int] = field(default_factory=dict)
    message_ids: dict[str, str] = field(default_factory=dict)
    joins: dict[str, str] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    kept: dict[str, list[Standing]] = field(default_factory=dict)
    """What each open transaction goes back to, savepoints on top."""
    gains: Counter[str] = field(default_factory=Counter)
    committed: list[int] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    unfinished: list[Row] = field(default_factory=list)
    """What waited in groups or was leased, as the session saw it, when its last claim or settlement began."""
    is_recent: bool = True
    """Whether that is how it was when the claim ended."""
    clock: float = 0
    moves: list[Move] = field(default_factory=list)
    """What has happened to schedules, as it was committed."""

    def call(self, routine: str, **arguments: object) -> str:
        """The text of a call."""
        named = ", ".join(f"{name} => {literal(value)}" for name, value in arguments.items())
        return f"SELECT * FROM {{schema}}.{routine}({named})"

    def stands(self, session: str, name: str) -> str | None:
        """Where a schedule stands for a session: by what was committed and what the session did itself."""
        moves = [*self.moves, *self.of(session).moves]
        return next((move.to for move in reversed(moves) if move.name == name), None)

    def of(self, session: str) -> Standing:
        """A session's standing."""
        return self.standings.setdefault(session, Standing())

    def begin(self, session: str) -> None:
        """A transaction or a savepoint begins."""
        self.kept.setdefault(session, []).append(deepcopy(self.of(session)))

    def go_back(self, session: str, *, keep: bool) -> None:
        """Back to the last savepoint, which stays if it is to be kept, or to where the transaction began."""
        stack = self.kept[session]
        if not keep:
            del stack[1:]
        self.standings[session] = deepcopy(stack[-1])
        if not keep:
            stack.clear()

    def commit(self, session: str) -> None:
        """What the session did has happened."""
        standing = self.of(session)
        self.gains += standing.gains
        self.committed += standing.created
        over = {(move.name, move.at) for move in self.moves if move.at is not None}
        for move in standing.moves:
            if (move.name, move.at) in over:
                raise BrokenError(f"{session} has {move.kind} {move.name} {move.at}, which was over")
        self.moves += standing.moves
        self.kept[session] = []
        self.standings[session] = Standing(held=standing.held)

    def mine(self, session: str, ids: Sequence[int]) -> set[int]:
        """What of these the session holds."""
        owner = owner_of(session)
        return {int(str(row["id"])) for row in self.unfinished if row["owner"] == owner} & set(ids)

    def settled(self, session: str, ids: Sequence[int], affected: int, gain: str | None) -> None:
        """An owner has settled; nothing but what it holds may have been touched."""
        standing = self.of(session)
        mine = self.mine(session, ids)
        if affected > len(mine) and self.is_recent:
            raise BrokenError(f"{session} has touched {affected} of {list(ids)} and held {sorted(mine)}")
        standing.held = [each for each in standing.held if each not in ids]
        standing.taken = [each for each in standing.taken if each not in ids]
        if gain:
            standing.gains[gain] += affected

    def handed(self, session: str, ids: Sequence[int]) -> None:
        """A claim has answered: nobody else may hold these, and groups come in order, one owner each."""
        standing = self.of(session)
        if len(set(ids)) < len(ids):
            raise BrokenError(f"one claim has handed {list(ids)} to {session}")
        for other, theirs in self.standings.items():
            if other != session and (both := set(theirs.taken) & set(ids)):
                raise BrokenError(f"{sorted(both)} handed to {session} and, by an open claim, to {other}")
        groups = {int(str(row["id"])): row for row in self.unfinished if self.is_recent}
        for place, each in enumerate(ids):
            row = groups.get(each)
            if row is not None and row["good"] == "t":
                raise BrokenError(f"{each} handed to {session} while another lease of it is good")
            if row is None or row["group_id"] is None:
                continue
            for other_id, theirs_row in groups.items():
                if theirs_row["group_id"] != row["group_id"] or other_id in ids[: place + 1]:
                    continue
                if theirs_row["owner"] == owner_of(session):
                    continue
                if other_id < each:
                    raise BrokenError(f"{each} handed to {session} before {other_id} of the same group")
                if theirs_row["good"] == "t":
                    raise BrokenError(
                        f"{each} handed to {session}; {other_id} of its group has another owner"
                    )
        standing.held += ids
        standing.taken += ids

    def check(self) -> None:
        """Fails if a rule about the tables is broken, all of them asked in one snapshot."""
        if broken := as_text(self.observer.ask(f"EXECUTE check_{self.box}")):
            raise BrokenError(f"not true: {broken}")
