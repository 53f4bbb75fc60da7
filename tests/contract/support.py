"""A box of either kind behind one set of methods, so that what both promise is written once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import InvalidArgument, PysqlboxError
from tests.support.database import Database, Session

Row = dict[str, Any]
Kind = Literal["outbox", "inbox"]

KINDS: dict[str, Kind] = {"outbox": "outbox", "inbox": "inbox", "orders": "inbox", "mail": "outbox"}
"""The boxes of every test deployment."""
OWNER = UUID("11111111-1111-4111-8111-111111111111")
OTHER = UUID("22222222-2222-4222-8222-222222222222")
NIL = UUID(int=0)
LONG = "x" * 255
TOO_LONG = ("x" * 256, "x" * 255 + " ")
HOSTILE = (
    'it\'s "quoted" `so`',
    "'; DROP TABLE infra.message; --",
    "100% %s %d :name ? @p $1 {schema} {{ box }}",
    "\\ back\\slash \\' \\n \\u0041",
    "line\nbreak\r\nand\ttab",
    "control \x01\x02\x0b\x1b[31m\x1f\x7f and \\\x01\\u001b",
    "[brackets] {braces} <angles> & ampersand",
    "emoji 🐘 and ünïcode, 漢字, e\u0301",
    "trailing  ",
    " leading",
    " ",
    "null",
    "NULL",
    "[1, 2]",
    "$$dollar$$ $tag$x$tag$",
)
"""Texts that must come back as they went in, wherever a routine takes text."""
DISTINCT = ("Case", "case", "case ", " case", "case  ", "căse")
"""Texts that differ, though many a collation calls some of them equal."""


def _names(text: str) -> list[str]:
    return text.split()


CLAIM_COLUMNS = {
    "outbox": _names(
        "id message_id topic payload correlation_id group_id priority headers attempt created_at due_at"
        " expires_at last_error locked_until"
    ),
    "inbox": _names(
        "id message_id source topic payload hash group_id priority headers attempt first_seen_at last_seen_at"
        " due_at expires_at last_error locked_until"
    ),
}
"""The columns of a claim, in their order."""
VIEW_COLUMNS = {
    "outbox": _names(
        "id message_id topic payload correlation_id group_id priority dedup_key collapse_key headers status"
        " attempt created_at due_at expires_at last_error owner_token locked_until processed_at processed_by"
        " died_at"
    ),
    "inbox": _names(
        "id message_id source topic payload hash group_id priority collapse_key headers status attempt"
        " first_seen_at last_seen_at due_at expires_at last_error owner_token locked_until processed_at"
        " processed_by died_at"
    ),
}
"""The columns of the view of messages, and of whatever looks a message up."""


class Caller(Protocol):
    """Whatever runs routines: the database, where each call commits, or an open session."""

    def call(self, routine: str, /, **arguments: object) -> list[Row]:
        """The rows that a routine answers."""

    def one(self, routine: str, /, **arguments: object) -> Row:
        """The one row that a routine answers."""

    def value(self, routine: str, /, **arguments: object) -> Any:
        """The one column of that row."""

    def sql(self, text: str, *parameters: object) -> list[Row]:
        """The rows of a statement."""


@dataclass(frozen=True, slots=True)
class Box:
    """One box of the deployment; arguments that do not matter to a test have values of their own."""

    name: str
    kind: Kind
    db: Database
    caller: Caller

    def on(self, session: Session) -> Box:
        """The same box, seen from an open transaction."""
        return replace(self, caller=session)

    @property
    def waiting(self) -> str:
        """The status of a message that waits to be claimed."""
        return "Ready" if self.kind == "outbox" else "Processing"

    @property
    def leased(self) -> str:
        """The status of a message that somebody holds."""
        return "InProgress" if self.kind == "outbox" else "Processing"

    @property
    def dead(self) -> str:
        """The status of a message that was given up."""
        return "Failed" if self.kind == "outbox" else "Dead"

    def call(self, step: str, **arguments: object) -> list[Row]:
        """The rows that a routine of this box answers."""
        return self.caller.call(f"{self.name}_{step}", **arguments)

    def one(self, step: str, **arguments: object) -> Row:
        """The one row that a routine of this box answers."""
        return self.caller.one(f"{self.name}_{step}", **arguments)

    def affected(self, step: str, **arguments: object) -> int:
        """What a routine that answers only `affected` answers."""
        row = self.one(step, **arguments)
        assert list(row) == ["affected"]
        return int(row["affected"])

    def record(self, topic: object = "t", payload: object = "p", **more: object) -> Row:
        """The arguments of an enqueue; an inbox gets a source and a message id that is new."""
        if self.kind == "inbox":
            more = {"source": "s", "message_id": uuid4().hex} | more
        return {"topic": topic, "payload": payload} | more

    def enqueue(self, topic: object = "t", payload: object = "p", **more: object) -> Row:
        """Enqueues one message and answers the routine's row."""
        return self.one("enqueue", **self.record(topic, payload, **more))

    def put(self, topic: object = "t", payload: object = "p", **more: object) -> int:
        """Enqueues one new message and answers its id."""
        row = self.enqueue(topic, payload, **more)
        assert row["outcome"] in ("created", "collapsed")
        return int(row["id"])

    def enqueue_many(self, *records: Mapping[str, object]) -> list[Row]:
        """Enqueues records in one call."""
        return self.call("enqueue_many", messages=json_text(records))

    def fill(self, count: int, **more: object) -> list[int]:
        """Enqueues many messages and answers their ids in order."""
        records = [self.record(**more) for _ in range(count)]
        return [int(row["id"]) for row in self.enqueue_many(*records)]

    def claim(
        self,
        owner_token: object = OWNER,
        *,
        lease_seconds: object = 30,
        batch_size: object = 10,
        topics: object = None,
    ) -> list[Row]:
        """The rows of a claim."""
        return self.call(
            "claim",
            owner_token=owner_token,
            lease_seconds=lease_seconds,
            batch_size=batch_size,
            topics=topics,
        )

    def take(
        self, owner: UUID = OWNER, *, lease: int = 30, batch: int = 10, topics: Sequence[str] | None = None
    ) -> list[int]:
        """The ids of a claim, in claim order."""
        return ids(self.claim(owner, lease_seconds=lease, batch_size=batch, topics=topics))

    def ack(self, owner: object, ids: object) -> int:
        """Acknowledges."""
        return self.affected("ack", owner_token=owner, ids=ids)

    def abandon(self, owner: object, ids: object, **more: object) -> int:
        """Gives back for another try."""
        return self.affected("abandon", owner_token=owner, ids=ids, **more)

    def retry(self, owner: object, ids: object, **more: object) -> tuple[int, int]:
        """Gives back for another try, or up: how many, and how many of them are dead."""
        row = self.one("retry", owner_token=owner, ids=ids, **more)
        assert list(row) == ["affected", "dead"]
        return int(row["affected"]), int(row["dead"])

    def release(self, owner: object, ids: object, **more: object) -> int:
        """Hands back."""
        return self.affected("release", owner_token=owner, ids=ids, **more)

    def fail(self, owner: object, ids: object, error: object = "it failed") -> int:
        """Gives up."""
        return self.affected("fail", owner_token=owner, ids=ids, error=error)

    def cancel(self, ids: object, reason: object = None) -> int:
        """Calls messages off."""
        return self.affected("cancel", ids=ids, reason=reason)

    def extend(self, owner: object, ids: object, lease_seconds: object = 30) -> list[Row]:
        """Prolongs leases."""
        return self.call("extend", owner_token=owner, ids=ids, lease_seconds=lease_seconds)

    def settle(self, owner: object, outcomes: object, **more: object) -> list[Row]:
        """Settles a mixed batch and answers the next claim."""
        text = outcomes if outcomes is None or isinstance(outcomes, str) else json_text(outcomes)
        return self.call("settle", owner_token=owner, outcomes=text, **more)

    def reap(self, batch_size: int = 1000) -> int:
        """Takes back leases that have run out."""
        return self.affected("reap", batch_size=batch_size)

    def get(self, message: int) -> Row:
        """The message with its status and bookkeeping."""
        return self.one("get", id=message)

    def shown(self, message: int) -> Row:
        """The message as the view shows it."""
        rows = self.caller.sql(f"SELECT * FROM {{schema}}.{self.name}_messages WHERE id = %s", message)
        assert len(rows) == 1
        return rows[0]

    def status(self, message: int) -> str:
        """The readable status of a message."""
        return str(self.shown(message)["status"])

    def count(self) -> int:
        """How many messages the box has, whatever their status."""
        return int(self.caller.sql(f"SELECT count(*) AS n FROM {{schema}}.{self.name}_messages")[0]["n"])

    def configure(self, name: object, value: object) -> Row:
        """Changes a setting."""
        return self.one("configure", name=name, value=value)

    def stats(self) -> dict[str | None, Row]:
        """The statistics by topic; the total is under None."""
        return {row["topic"]: row for row in self.call("stats")}

    def made_dead(self, count: int = 1, **more: Any) -> list[int]:
        """Messages that were claimed and failed."""
        made = [self.put(**more) for _ in range(count)]
        assert sorted(self.take(batch=count)) == made
        assert self.fail(OWNER, made) == count
        return made

    def made_run(self, count: int = 300) -> list[int]:
        """Plain messages of one batch: where there are runs they wait in runs."""
        rows = self.enqueue_many(*[self.record() for _ in range(count)])
        return ids(rows)

    def made_done(self, count: int = 1, **more: Any) -> list[int]:
        """Messages that were claimed and acknowledged."""
        made = [self.put(**more) for _ in range(count)]
        assert sorted(self.take(batch=count)) == made
        assert self.ack(OWNER, made) == count
        return made


def check_books(box: Box) -> None:
    """Whether the statistics agree with what the view shows, message by message."""
    query = (
        "SELECT count(*) AS messages, count(owner_token) AS in_flight, count(processed_at) AS done,"
        f" count(died_at) AS dead FROM {{schema}}.{box.name}_messages WHERE topic IS NOT NULL"
    )
    (shown,) = box.db.sql(query)
    total = box.stats()[None]
    counted = {name: total[name] for name in ("in_flight", "done", "dead")}
    assert counted == {name: shown[name] for name in counted}
    assert total["ready"] + total["scheduled"] == int(str(shown["messages"])) - sum(counted.values())
    # T-SQL would group topics that differ only in the blanks at their ends.
    lie = box.db.sql(
        f"SELECT topic FROM {{schema}}.{box.name}_messages WHERE topic IS NOT NULL AND died_at IS NOT NULL"
    )
    told = {topic: row["dead"] for topic, row in box.stats().items() if topic is not None and row["dead"]}
    assert told == Counter(row["topic"] for row in lie)


def ids(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The ids of rows, in their order."""
    return [int(row["id"]) for row in rows]


def json_text(value: object) -> str:
    """JSON of records, whose uuids and times become text; both dialects take it."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(type(value).__name__)


def headers_of(row: Mapping[str, Any]) -> object:
    """The headers of a row as an object, whether the driver gave text or a dict."""
    value = row["headers"]
    return json.loads(value) if isinstance(value, str) else value


def plain(row: Mapping[str, Any]) -> Row:
    """A row whose headers are an object, so that rows of routines and of plain SQL compare."""
    return {**row, "headers": headers_of(row)}


def server_now(db: Database) -> datetime:
    """The server's own clock, which the test clock is ahead of by what the test has advanced it."""
    query = "SELECT clock_timestamp()" if db.dialect == "postgres" else "SELECT SYSUTCDATETIME()"
    value = db.sql(f"{query} AS now_at")[0]["now_at"]
    assert isinstance(value, datetime)
    return value.astimezone(UTC)


def refuses(argument: str) -> pytest.RaisesExc[InvalidArgument]:
    """Expects an invalid argument whose message names the argument."""
    return pytest.raises(InvalidArgument, match=argument)


def unreadable(db: Database) -> pytest.RaisesExc[PysqlboxError]:
    """Expects the refusal of a value that the parameter's own type cannot read; the routine never sees it."""
    return pytest.raises(PysqlboxError if is_babelfish(db) else InvalidArgument)


def columns(db: Database, routine: str, *arguments: object) -> list[str]:
    """The columns a routine answers, read from the cursor, so that an empty answer has them too."""
    with db.session() as session:
        cursor = session.connection.cursor()
        text, parameters = _call_text(db, session.schema, routine, arguments)
        cursor.execute(text if db.dialect == "postgres" else text.replace("%s", "?"), parameters)
        while cursor.description is None:
            assert cursor.nextset(), f"{routine} answers no result set"
        return [column[0] for column in cursor.description]


def by_position(db: Database, routine: str, *arguments: object) -> list[Row]:
    """Runs a routine with arguments in the contract's order instead of by name."""
    text, parameters = _call_text(db, "{schema}", routine, arguments)
    return db.sql(text, *parameters)


def _call_text(
    db: Database, schema: str, routine: str, arguments: Sequence[object]
) -> tuple[str, list[object]]:
    marks = ", ".join("NULL" if value is None else "%s" for value in arguments)
    name = f"{schema}.{routine}"
    text = f"SELECT * FROM {name}({marks})" if db.dialect == "postgres" else f"EXEC {name} {marks}"
    return text, [_positional(db, value) for value in arguments if value is not None]


def _positional(db: Database, value: object) -> object:
    if isinstance(value, dict):
        return json_text(value)
    if db.dialect == "mssql":
        if isinstance(value, list):
            return json_text(value)
        if isinstance(value, UUID):
            return str(value)
        if isinstance(value, datetime):
            return value.astimezone(UTC).replace(tzinfo=None)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return json_text(value)
    return value


def impatient(session: Session) -> Session:
    """The session, made to fail where it would wait for another one's lock."""
    if session.dialect == "postgres":
        session.sql("SET lock_timeout = '3s'")
    else:
        session.sql("SET LOCK_TIMEOUT 3000")
    return session


def is_babelfish(db: Database) -> bool:
    """Whether the engine is Babelfish, which speaks T-SQL but locks and reports in PostgreSQL's way."""
    if db.dialect == "postgres":
        return False
    query = "SELECT CAST(SERVERPROPERTY('Babelfish') AS int) AS babelfish"
    return db.sql(query)[0]["babelfish"] == 1


def needs_lock_hints(db: Database) -> None:
    """Skips a test on an engine that parses READPAST and ROWLOCK but does not honour them."""
    if is_babelfish(db):
        pytest.skip("Babelfish ignores lock hints, so a claim there waits for another open one")


def needs_isolation_levels(db: Database) -> None:
    """Skips a test on an engine that knows only READ COMMITTED."""
    if is_babelfish(db):
        pytest.skip("Babelfish refuses every isolation level but READ COMMITTED")
