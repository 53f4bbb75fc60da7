"""The clock of a deployment that was made for tests."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pysqlbox.drivers.values import from_database
from pysqlbox.errors import InvalidArgument, InvalidState
from pysqlbox.names import quote_identifier

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["Clock", "clock"]


class Clock:
    """Moves what a deployment takes for the time; the server's own clock stays as it is."""

    def __init__(self, db: Deployment) -> None:
        """InvalidState if the deployment was not made with ``db.migrate(test_clock=True)``."""
        self._db = db
        with db.connection() as raw:
            if not db.driver.has_routine(raw, db.schema, "_set_clock"):
                raise InvalidState(
                    f"{db!r} has the server's clock, which cannot be moved; for tests, deploy with"
                    " db.migrate(test_clock=True)"
                )

    @property
    def ahead(self) -> timedelta:
        """How far it is ahead of the server's."""
        db = self._db
        schema, name = (quote_identifier(db.target.dialect, each) for each in (db.schema, "_clock"))
        column = "last_value / 1000.0" if db.target.dialect == "postgres" else "offset_seconds"
        with db.connection() as raw:
            row = raw.execute(f"SELECT {column} FROM {schema}.{name}").fetchone()
        return timedelta(seconds=float(str(from_database(row[0]))))

    def advance(self, by: float | timedelta) -> None:
        """Let time pass, in seconds or as a timedelta: what is delayed falls due, leases run out."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise InvalidArgument("by: time does not go back; use reset() to set the clock right")
        self._set(self.ahead + step)

    def reset(self) -> None:
        """Go by the server's clock again."""
        self._set(timedelta(0))

    def _set(self, ahead: timedelta) -> None:
        self._db.call("_set_clock", {"offset_seconds": ahead.total_seconds()})


def clock(db: Deployment) -> Clock:
    """The clock of a deployment."""
    return Clock(db)
