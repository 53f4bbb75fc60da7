"""Connections whose statements are sent and answered apart, so that one thread can run several sessions."""

from __future__ import annotations

import contextlib
import select

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from pysqlbox.drivers import connect
from tests.support.database import Database

Row = dict[str, str | None]
"""A row as the server writes it."""

_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)


class StatementError(Exception):
    """What the server said instead of an answer."""

    def __init__(self, state: str, message: str) -> None:
        """The SQLSTATE and the text."""
        super().__init__(f"{state} {message}")
        self.state = state


class Link:
    """One connection in autocommit; transactions begin and end by statements."""

    def __init__(self, db: Database, settings: str = "") -> None:
        """Connects, and runs these settings."""
        self._schema = db.schema
        self._connection: psycopg.Connection[object] = connect(db.url, autocommit=True)
        self._server = self._connection.pgconn
        self.pid = self._server.backend_pid
        if settings:
            self.ask(settings)

    def send(self, text: str) -> None:
        """Sends statements; `{schema}` is the schema."""
        self._server.send_query(text.replace("{schema}", self._schema).encode())

    def is_answered(self, seconds: float) -> bool:
        """Whether the answer is there, at the latest after some time."""
        if self._server.is_busy():
            poll = select.poll()
            poll.register(self._server.socket, select.POLLIN)
            poll.poll(seconds * 1000)
            self._server.consume_input()
        return not self._server.is_busy()

    def answers(self) -> list[list[Row]]:
        """The rows of each statement, waiting for them if need be."""
        found: list[list[Row]] = []
        error: StatementError | None = None
        while (result := self._server.get_result()) is not None:
            if result.status in _GOOD:
                found.append(_rows(result))
            else:
                error = error or StatementError(
                    (result.error_field(DiagnosticField.SQLSTATE) or b"?????").decode(),
                    (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message).decode(),
                )
        if error is not None:
            raise error
        return found

    def ask(self, text: str) -> list[Row]:
        """Sends statements and waits for the last one's rows."""
        self.send(text)
        return self.answers()[-1]

    def close(self) -> None:
        """Gives up whatever runs."""
        if self._server.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            with contextlib.suppress(psycopg.Error):  # it may have ended meanwhile
                self._connection.cancel_safe(timeout=5)
        self._connection.close()


def _rows(result: PGresult) -> list[Row]:
    names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
    rows: list[Row] = []
    for place in range(result.ntuples):
        values = (result.get_value(place, column) for column in range(result.nfields))
        rows.append({n: None if v is None else v.decode() for n, v in zip(names, values, strict=True)})
    return rows
