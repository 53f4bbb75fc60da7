"""Transactional handlers: what they write, what they send, and the end of their messages in one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from pysqlbox.errors import InvalidState
from pysqlbox.pool import Pool
from pysqlbox.wording import counted
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.context import Context
from pysqlbox.worker.forking import end_child
from pysqlbox.worker.handlers import Handler
from pysqlbox.worker.results import Ack, Release, Result

if TYPE_CHECKING:
    from pysqlbox.boxes import AnyBox
    from pysqlbox.deployment import Deployment

__all__ = ["LeaseLost", "Transactions"]


class LeaseLost(InvalidState):
    """The message is not this worker's any more, so what its handler wrote was rolled back."""


class _RollBack(Exception):
    """Ends a transaction whose messages are not done."""


class Connections(Protocol):
    """Where the connections of transactions come from."""

    def connection(self) -> AbstractContextManager[Any]:
        """A connection in autocommit, given back at the end of the block."""

    def close(self) -> None:
        """No more are needed."""


class Transactions:
    """Runs handlers in transactions, on connections of the worker's own or on the application's."""

    def __init__(self, db: Deployment, owner: UUID, threads: int, pool: Connections | None = None) -> None:
        self._db = db
        self._owner = owner
        # With the worker's other connections no more than two for each thread, and four.
        size = 2 * threads - 1 if threads > 1 else 2
        self._pool: Connections = pool or Pool(db.driver, db.target, size=size)

    def run(
        self,
        assignment: Assignment,
        handler: Handler,
        messages: list[Any],
        context: Context,
        call: Callable[[], Any],
    ) -> list[Result]:
        """The results of messages; if all of them are Ack, that and what the handler wrote is committed."""
        results: list[Result] = []
        failure: BaseException | None = None
        own = handler.transactional is True
        begin = self._own if own else handler.transactional
        assert callable(begin)
        try:
            with begin() as connection:
                context.joined = connection
                try:
                    try:
                        answer = call()
                    finally:
                        if context.is_of_child:
                            end_child(assignment.box.log)
                    results.extend(handler.results_of(messages, answer))
                    if not all(isinstance(result, Ack) for result in results):
                        raise _RollBack
                    self._end(assignment, messages, connection, own=own)
                except BaseException as error:
                    failure = error
                    raise
            if failure is not None:  # the application's context manager has kept it to itself
                raise failure
        except _RollBack:
            # What was done for the others is undone as well, so they come again.
            return [Release() if isinstance(result, Ack) else result for result in results]
        finally:
            context.joined = failure = None  # whose traceback holds this frame
        return results

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _end(self, assignment: Assignment, messages: list[Any], connection: Any, *, own: bool) -> None:
        """Make the messages done in the handler's transaction, which is committed with that if it is ours."""
        ids = [message.id for message in messages]
        done = 0
        if not assignment.overrun:
            end = self._ack_and_commit if own else self._ack
            done = end(assignment.box.queue, ids, connection)
        if done < len(ids):
            assignment.lose(ids)
            raise LeaseLost(
                f"this worker has lost the lease of {len(ids) - done} of {counted(len(ids), 'message')}"
            )

    def _ack(self, box: AnyBox, ids: list[int], connection: Any) -> int:
        return box.ack(self._owner, ids, connection=connection)

    def _ack_and_commit(self, box: AnyBox, ids: list[int], connection: Any) -> int:
        return self._db.driver.end_transaction(
            connection,
            self._db.target,
            self._db.schema,
            f"{box.name}_ack",
            {"owner_token": self._owner, "ids": ids},
            len(ids),
        )

    @contextlib.contextmanager
    def _own(self) -> Iterator[Any]:
        """A psycopg or pyodbc connection in a transaction, which is rolled back if something is raised.

        With psycopg the handler's own commit() and rollback() are refused, which would tear what it wrote
        from the end of its message.
        """
        driver = self._db.driver
        with self._pool.connection() as raw:
            driver.begin_transaction(raw, self._db.target)
            try:
                yield raw
            except BaseException:
                with contextlib.suppress(driver.database_error()):
                    driver.undo_transaction(raw)
                raise
