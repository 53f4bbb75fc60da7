"""Stand-ins for what surrounds a part of the worker: a box that no database is behind, a connection."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.exchange import Exchange
from pysqlbox.worker.handlers import Handler, Handlers
from pysqlbox.worker.handling import Answer, Handling
from pysqlbox.worker.outcomes import Outcomes
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.unknown_topics import UnknownTopics

OWNER = uuid.UUID("11111111-1111-4111-8111-111111111111")


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """The time that the test has set."""
        return self.now


class Connection:
    """One that notes what was asked, and leaves the answer to whoever tests."""

    def __init__(self) -> None:
        self.calls = SimpleNamespace(lost=False)
        self.settled: list[Outcomes] = []
        self.called: list[tuple[str, Mapping[str, object]]] = []
        #: What a settlement does, and answers.
        self.on_settle: Callable[[Outcomes, int], list[Any]] = lambda _outcomes, _claim: []
        #: The same for any other routine.
        self.on_call: Callable[[str, Mapping[str, object]], list[dict[str, object]]] = lambda *_: []

    def settle(
        self, _box: Any, _owner: uuid.UUID, outcomes: Outcomes, claim: int, _lease: int, _topics: Any
    ) -> list[Any]:
        """As a worker's connection."""
        self.settled.append(outcomes)
        return self.on_settle(outcomes, claim)

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        """As a worker's connection."""
        self.called.append((routine, arguments))
        return self.on_call(routine, arguments)


class Store:
    """Lends the one connection."""

    def __init__(self) -> None:
        self.lent = Connection()
        self.transactions: Any = None
        self.database = SimpleNamespace(is_silent=False)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """As a served store."""
        yield self.lent

    @contextlib.contextmanager
    def helper_connection(self, _limit: float, _meanwhile: Callable[[], None]) -> Iterator[Any]:
        """As a served store."""
        yield self.lent


def message(identity: int, topic: str = "t", **fields: Any) -> Any:
    """A message as a claim answers it."""
    found: dict[str, Any] = {
        "id": identity, "message_id": identity, "topic": topic, "attempt": 0, "group_id": None,
        "payload": "p", "headers": None, **fields,
    }  # fmt: skip
    return SimpleNamespace(**found)


class Parts:
    """A scheduler with boxes, and what handles and settles for it; no threads."""

    def __init__(self, *names: str, settings: Settings | None = None, threads: int = 1) -> None:
        self.store = Store()
        self.settings = settings or Settings(poll_seconds=60.0)
        self.handlers = Handlers()
        self.boxes = [self._box(name, threads) for name in names or ("outbox",)]
        self.box = self.boxes[0]
        self.scheduler = Scheduler(self.boxes, threads=threads)
        self.handling = Handling(self.scheduler, self.handlers, self.settings, UnknownTopics("snooze"))
        self.held: list[Assignment] = []
        self.exchange = Exchange(self.scheduler, OWNER, self.settings.lease_seconds, lambda: self.held)
        self.tally = Tally()

    @property
    def connection(self) -> Connection:
        """The one that everybody is lent."""
        return self.store.lent

    def handler(self, topic: str, function: Callable[..., Any], **options: Any) -> Handler:
        """Registers a handler."""
        made = Handler(topic, function, **options)
        self.handlers.add(made)
        return made

    def handle(self, assignment: Assignment) -> None:
        """Runs an assignment as a thread does."""
        steps = self.handling.steps(assignment, self.tally)
        with contextlib.suppress(StopIteration):
            call = next(steps)
            while True:
                try:
                    answer: Answer = call(), None
                except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its answer
                    answer = None, error
                call = steps.send(answer)

    def thread(self) -> Any:
        """A thread as the scheduler sees it."""
        return SimpleNamespace(
            has_turn=False, turn_began=0.0, at_work=False, superfluous=False, hanging=False, rank=0,
            assignment=None, asked=None, tally=self.tally,
        )  # fmt: skip

    def _box(self, name: str, threads: int) -> ServedBox:
        deployment = SimpleNamespace(store="test", schema="infra", store_key=None, counts=None)
        queue: Any = SimpleNamespace(name=name, kind="outbox", deployment=deployment)
        store: Any = self.store
        return ServedBox(
            queue, self.handlers, self.settings,
            topics=None, threads=threads, max_attempts=None, store=store,
        )  # fmt: skip
