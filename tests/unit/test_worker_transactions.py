"""How a handler's transaction ends, on connections that only note what is done to them."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox import InvalidState
from pysqlbox.pool import Pool
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.forking import EXIT_CODE
from pysqlbox.worker.results import Ack, Release, Retry
from pysqlbox.worker.transactions import LeaseLost, Transactions
from tests.unit.standins import OWNER, message

#: Threads of a test runner, say.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


class Failed(sqlite3.Error):
    """What the driver of these tests raises."""


class Connection:
    """One of either kind; ``done`` is what was done to it, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails: set[str] = set()

    def do(self, what: str) -> None:
        """Note it, and fail if it is to."""
        self.done.append(what)
        if what in self.fails:
            raise Failed(what)


class Connections:
    """Lends the one; given back it is in autocommit, as the pool leaves it."""

    def __init__(self, connection: Connection) -> None:
        self.lent = connection

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        yield self.lent

    def close(self) -> None:
        """Nothing is kept."""


class Work:
    """Messages of one handler, in a transaction."""

    def __init__(self, count: int = 1) -> None:
        self.connection = Connection()
        self.acked: list[list[int]] = []
        self.holds = count
        driver = SimpleNamespace(
            database_error=lambda: Failed,
            begin_transaction=lambda connection, _target: connection.do("begin"),
            end_transaction=self._end,
            undo_transaction=lambda connection: connection.do("rollback"),
        )
        db: Any = SimpleNamespace(driver=driver, target=SimpleNamespace(), schema="infra")
        self.transactions = Transactions(db, OWNER, 1, Connections(self.connection))
        queue = SimpleNamespace(name="outbox", ack=self._ack)
        log, settings = SimpleNamespace(error=lambda *_: None), SimpleNamespace(lease_seconds=30)
        box: Any = SimpleNamespace(queue=queue, log=log, settings=settings)
        self.messages = [message(each) for each in range(count)]
        self.assignment = Assignment(box, self.messages, 0.0)
        self.context: Any = SimpleNamespace(joined=None, is_of_child=False)
        self.handler: Any = SimpleNamespace(transactional=True, results_of=lambda _messages, answer: answer)

    def _end(
        self, connection: Any, _target: Any, schema: str, routine: str, arguments: Any, count: int
    ) -> int:
        assert (schema, routine, arguments["owner_token"]) == ("infra", "outbox_ack", OWNER)
        assert (connection, len(arguments["ids"])) == (self.connection, count)
        connection.do("ack")
        if self.holds == count:
            connection.do("commit")
        return self.holds

    def _ack(self, owner: Any, ids: list[int], *, connection: Any) -> int:
        assert (owner, connection) == (OWNER, self.connection)
        connection.do("ack alone")
        self.acked.append(ids)
        return self.holds

    def run(self, call: Callable[[], Any]) -> Any:
        assert self.assignment.begin(self.handler)
        return self.transactions.run(self.assignment, self.handler, self.messages, self.context, call)


@pytest.fixture
def work() -> Work:
    """One message."""
    return Work()


def raises() -> None:
    """A handler with a fault."""
    raise KeyError("x")


def test_the_end_of_a_message_is_in_the_handlers_transaction(work: Work) -> None:
    def handle() -> list[Ack]:
        assert work.context.joined is work.connection
        assert work.connection.done == ["begin"], "what it writes is in a transaction"
        return [Ack()]

    assert work.run(handle) == [Ack()]
    assert work.connection.done == ["begin", "ack", "commit"]
    assert work.context.joined is None, "the connection is somebody else's now"


def test_only_an_ack_commits_and_the_others_of_a_batch_come_again() -> None:
    work = Work(count=2)
    retry = Retry()
    assert work.run(lambda: [Ack(), retry]) == [Release(), retry]
    assert work.connection.done == ["begin", "rollback"]
    assert work.context.joined is None


def test_in_the_applications_own_transaction_only_the_message_ends(work: Work) -> None:
    """Its commit is the application's context manager's."""
    work.handler.transactional = lambda: contextlib.nullcontext(work.connection)
    assert work.run(lambda: [Ack()]) == [Ack()]
    assert work.connection.done == ["ack alone"]
    assert work.acked == [[0]]


def test_what_a_handler_raises_undoes_what_it_wrote(work: Work) -> None:
    with pytest.raises(KeyError):
        work.run(raises)
    assert work.connection.done == ["begin", "rollback"]


def test_what_a_handler_raised_stands_also_if_the_rollback_fails() -> None:
    work = Work()
    work.connection.fails.add("rollback")
    with pytest.raises(KeyError):
        work.run(raises)


def test_a_transaction_that_cannot_be_begun_calls_no_handler(work: Work) -> None:
    work.connection.fails.add("begin")
    with pytest.raises(Failed):
        work.run(raises)
    assert work.connection.done == ["begin"]


def test_a_commit_that_fails_is_undone(work: Work) -> None:
    """As far as anything is left of it: a connection that is given back has no transaction."""
    work.connection.fails.add("commit")
    with pytest.raises(Failed):
        work.run(lambda: [Ack()])
    assert work.connection.done == ["begin", "ack", "commit", "rollback"]


def test_a_lost_lease_rolls_back_and_is_noted(work: Work) -> None:
    work.holds = 0
    with pytest.raises(LeaseLost, match="1 of 1 message"):
        work.run(lambda: [Ack()])
    assert work.connection.done == ["begin", "ack", "rollback"]
    assert work.assignment.lost == {0}


def test_a_lost_lease_is_known_to_who_holds_the_others() -> None:
    work = Work(count=3)
    work.holds = 1
    with pytest.raises(LeaseLost, match="2 of 3 messages"):
        work.run(lambda: [Ack(), Ack(), Ack()])
    assert work.assignment.lost == {0, 1, 2}


def test_who_overran_his_time_does_not_even_ask(work: Work) -> None:
    """His messages are settled by somebody else, perhaps after this commit would have been."""

    def handle() -> list[Ack]:
        assert work.assignment.take_overrun(-1.0)
        return [Ack()]

    with pytest.raises(LeaseLost):
        work.run(handle)
    assert work.connection.done == ["begin", "rollback"]


@pytest.mark.parametrize("outcome", ["retry", "raises"])
def test_a_context_manager_that_swallows_hides_nothing(outcome: str) -> None:
    """The application's own: what it has rolled back is not done."""
    work = Work()

    @contextlib.contextmanager
    def swallowing() -> Iterator[Any]:
        with contextlib.suppress(Exception):
            yield work.connection

    work.handler.transactional = swallowing
    if outcome == "raises":
        with pytest.raises(KeyError):
            work.run(raises)
    else:
        retry = Retry()
        assert work.run(lambda: [retry]) == [retry]
    assert work.acked == []


def test_what_was_raised_is_kept_by_nobody() -> None:
    """With it would be kept what the handler's frames hold, a message's payload for one."""
    work = Work()

    class Own(Exception):
        pass

    def handle() -> None:
        raise Own

    def run() -> weakref.ref[Own]:
        try:
            work.run(handle)
        except Own as error:
            return weakref.ref(error)
        raise AssertionError("it should have been raised")

    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("fails", [False, True])
def test_a_forked_child_that_comes_back_ends_before_its_parents_transaction(fails: bool) -> None:
    work = Work()
    read, write = os.pipe()
    work.connection.do = lambda what: os.write(write, what[:1].encode())  # type: ignore[assignment, method-assign]  # seen by both

    def handle() -> list[Ack]:
        work.context.is_of_child = True
        if fails:
            raise ValueError("on its way out")
        return [Ack()]

    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            work.run(handle)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == EXIT_CODE
    os.close(write)
    with os.fdopen(read, "rb") as said:
        assert said.read() == b"b", "begun before the fork, and left alone behind it"


@pytest.mark.parametrize(("threads", "most"), [(1, 2), (2, 3), (8, 15)])
def test_with_a_workers_other_connections_they_are_at_most_two_for_a_thread(threads: int, most: int) -> None:
    from pysqlbox.drivers import parse_url

    db: Any = SimpleNamespace(driver=None, target=parse_url("postgresql://host/db"))
    pool = Transactions(db, OWNER, threads)._pool
    assert isinstance(pool, Pool)
    assert pool.size == most


def test_no_more_connections_are_needed_once_it_is_closed() -> None:
    from pysqlbox.drivers import parse_url

    db: Any = SimpleNamespace(driver=None, target=parse_url("postgresql://host/db"))
    transactions = Transactions(db, OWNER, 1)
    transactions.close()
    with pytest.raises(InvalidState, match="closed"), transactions._pool.connection():
        pass
