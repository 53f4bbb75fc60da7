"""Messages by status, one look at a time; and the steps of joins, which no routine lists, from their view."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pysqlbox.arguments import given
from pysqlbox.boxes import AnyBox
from pysqlbox.deployment import Deployment
from pysqlbox.drivers.values import from_database
from pysqlbox.names import quote_identifier

__all__ = ["Step", "joins_of", "list_page", "steps_of"]

_STEP = "join_id, message_id, id, topic, status, attached_at"


@dataclass(frozen=True, slots=True)
class Step:
    """A message that a join waits for."""

    join_id: UUID
    message_id: UUID
    id: int
    topic: str | None
    status: str
    attached_at: datetime


def list_page(
    box: AnyBox, status: str, *, topic: str | None, group_id: str | None, limit: int, after_id: int
) -> tuple[list[Any], int | None]:
    """One look of the routine, and behind which id the next one goes on; None at the end."""
    arguments = given(
        {"status": status, "limit": limit, "after_id": after_id}, {"topic": topic, "group_id": group_id}
    )
    rows = box.deployment.call(f"{box.name}_list", arguments, repeat=True)
    following = rows[-1][0] if len(rows) >= limit else None
    # A look that ended before the page was full says so in a row that has nothing but an id.
    if rows and rows[-1][box.listed_status] is None:
        following = rows.pop()[0]
    return [box.listed_type(*row) for row in rows], following


def steps_of(db: Deployment, join_id: UUID, limit: int, after: UUID | None = None) -> list[Step]:
    """A page of the steps of a join, by their message_ids."""
    if after is None:
        return _steps(db, "join_id = %s", limit, join_id)
    return _steps(db, "join_id = %s AND message_id > %s", limit, join_id, after)


def joins_of(db: Deployment, id: int, limit: int) -> list[Step]:
    """The joins that a message of the outbox is a step of."""
    return _steps(db, "id = %s", limit, id)


def _steps(db: Deployment, condition: str, limit: int, *values: object) -> list[Step]:
    view = f"{quote_identifier(db.target.dialect, db.schema)}.outbox_join_members"
    text = (
        f"SELECT {_STEP} FROM {view} WHERE {condition}"
        f" ORDER BY join_id, message_id OFFSET 0 ROWS FETCH NEXT {int(limit)} ROWS ONLY"
    )
    return [Step(*row) for row in _select(db, text, *values)]


def _select(db: Deployment, text: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a query, in either dialect."""
    if db.target.dialect == "mssql":
        text = text.replace("%s", "?")
        values = tuple(str(value) if isinstance(value, UUID) else value for value in values)
    error_type = db.driver.database_error()
    with db.connection() as raw:
        try:
            with raw.cursor() as cursor:
                cursor.execute(text, values)
                rows = cursor.fetchall()
        except error_type as error:
            raise db.driver.map_error(error, db.target) from error
    return [tuple(from_database(value) for value in row) for row in rows]
