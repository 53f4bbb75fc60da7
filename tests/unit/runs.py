"""A run of a worker whose database is a stand-in: real threads, and a lease keeper that only settles."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pysqlbox.worker.exchange import Exchange
from pysqlbox.worker.handling import Handling
from pysqlbox.worker.health import BoxHealth, ListenerState
from pysqlbox.worker.hooks import Hooks
from pysqlbox.worker.lease_keeper import LeaseKeeper
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.unknown_topics import UnknownTopics
from pysqlbox.worker.worker_run import WorkerRun
from tests.unit.standins import OWNER, Parts

__all__ = ["PATIENCE", "MakeRun", "Run", "comes", "make_run", "waits"]

#: What does not come in so many seconds does not come at all.
PATIENCE = 30.0

MakeRun = Callable[..., "Run"]


def comes(condition: Callable[[], object]) -> None:
    """Waits until something has come about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"does not come: {condition}"
        time.sleep(0.002)


class waits:
    """Calls something in a thread, which must wait while the block lasts, and end behind it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.answers: list[object] = []
        self._begun = threading.Event()
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._begun.set()
        self.answers.append(self._call())

    def __enter__(self) -> None:
        self._thread.start()
        assert self._begun.wait(PATIENCE)
        self._thread.join(0.05)
        assert not self.answers, "it did not wait"

    def __exit__(self, *error: object) -> None:
        pass

    def answer(self) -> object:
        """What it answered in the end."""
        self._thread.join(PATIENCE)
        return self.answers[0]


class Keeper:
    """In place of the lease keeper."""

    def __init__(self, scheduler: Scheduler, exchange: Exchange) -> None:
        self.tally = Tally()
        self.settles = True
        self._scheduler, self._exchange = scheduler, exchange

    def run(self, ended: Callable[[], bool]) -> None:
        """Until the run is over."""
        while not ended():
            for box in self._scheduler.boxes if self.settles else ():
                self._exchange.settle(box)
            time.sleep(0.002)


class Run(WorkerRun):
    """A run that notes what it does to the outside."""

    def __init__(self, parts: Parts, hooks: Hooks | None = None, **options: Any) -> None:
        self.parts = parts
        self.hooks = hooks or Hooks()
        #: The runs that have said that they are over: this one, once.
        self.told: list[WorkerRun] = []
        self.must_end_at: list[float] = []
        self.closed: list[str] = []
        self.closed_by = ""
        #: What runs beside the threads.
        self.to_help: dict[str, Callable[[], object]] = {}
        super().__init__(
            parts.box.log, parts.settings, parts.handlers, self.hooks, UnknownTopics("snooze"), OWNER,
            ended=self.told.append, **{"threads": 1, "drain": False, "loop": None, **options},
        )  # fmt: skip
        parts.scheduler.coroutines = self._coroutines

    def start(self) -> None:
        """As if the database had answered at once."""
        self._call_on_start()
        self._launch(self.parts.scheduler)

    def serve(self, *messages: Any) -> None:
        """Lets claims bring these, each once."""
        waiting = deque(messages)
        lock = threading.Lock()

        def on_settle(_outcomes: Any, claim: int) -> list[Any]:
            with lock:
                return [waiting.popleft() for _ in range(min(claim, len(waiting)))]

        self.parts.connection.on_settle = on_settle

    @property
    def settled(self) -> list[tuple[object, object]]:
        """What the database was told of messages."""
        found: list[tuple[object, object]] = []
        for outcomes in self.parts.connection.settled:
            found += [(each, "ack") for each in outcomes.acked]
            found += [(each["id"], each["result"]) for each in outcomes.others]
        return sorted(found, key=str)

    def _make_exchange(self, scheduler: Scheduler) -> Exchange:
        return Exchange(scheduler, OWNER, self.parts.settings.lease_seconds, self._worked_on)

    def _make_keeper(self, scheduler: Scheduler, handling: Handling, exchange: Exchange) -> LeaseKeeper:
        del handling
        keeper: Any = Keeper(scheduler, exchange)
        return keeper  # type: ignore[no-any-return]  # a stand-in's

    def _start_helpers(self, scheduler: Scheduler) -> None:
        del scheduler
        for name, target in self.to_help.items():
            self._spawn_helper(name, target)

    def _must_end_at(self, until: float) -> None:
        self.must_end_at.append(until)

    def _keeper_ended(self) -> None:
        self.closed.append("keeper")

    def _close_stores(self) -> None:
        self.closed.append("stores")
        self.closed_by = threading.current_thread().name

    def _health_before(self, running: bool) -> list[BoxHealth]:
        del running
        return []

    def _hears(self, box: Any) -> ListenerState:
        del box
        return "off"


@pytest.fixture
def make_run() -> Iterator[MakeRun]:
    """A maker of runs, which end with the test."""
    made: list[Run] = []

    def make(*boxes: str, threads: int = 1, hooks: Hooks | None = None, **options: Any) -> Run:
        parts = Parts(*boxes, threads=threads)
        run = Run(parts, hooks, threads=threads, **options)
        made.append(run)
        return run

    yield make
    for each in made:
        each.stop(0.0)
