"""Worker processes: started, signalled, killed; and what their journal must show whatever happens to them."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pysqlbox
from tests.support.database import Database
from tests.worker.support import until

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the journal."""

    what: str
    id: int
    group: str | None
    attempt: int
    pid: int
    at: float


class Journal:
    """What the handlers of all the processes wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deaths: dict[int, float] = {}

    def lines(self) -> list[Line]:
        """All of it so far."""
        if not self.path.exists():
            return []
        *whole, _ = self.path.read_text().split("\n")  # what comes last may still be being written
        return [Line(**json.loads(text)) for text in whole]

    def of(self, what: str) -> list[int]:
        """The messages that began or ended, in that order."""
        return [line.id for line in self.lines() if line.what == what]

    def runs(self) -> dict[int, list[tuple[float, float, int]]]:
        """By message: when each call began and ended, and its process; with a process all its calls end."""
        found: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
        begun: dict[tuple[int, int], float] = {}
        for line in self.lines():
            if line.what == "begin":
                begun[line.id, line.pid] = line.at
            else:
                found[line.id].append((begun.pop((line.id, line.pid)), line.at, line.pid))
        for (message, pid), at in begun.items():
            found[message].append((at, self.deaths.get(pid, float("inf")), pid))
        return {message: sorted(runs) for message, runs in found.items()}


class Process:
    """One worker process."""

    def __init__(
        self, url: str, schema: str, journal: Journal, *, module: str = "tests.worker.program", **options: Any
    ) -> None:
        settings: dict[str, Any] = {"threads": 3, "poll_seconds": 0.05, "reap_seconds": 0.5, **options}
        command = [sys.executable, "-m", module, url, schema, str(journal.path)]
        self._journal = journal
        self._process = subprocess.Popen(
            [*command, json.dumps(settings)],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        if self._process.stdout.readline().strip() != "ready":
            raise AssertionError(self._process.communicate(timeout=10)[1])

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it in the middle of whatever it does."""
        self._process.kill()
        self._process.wait(10)
        self._journal.deaths[self.pid] = time.monotonic()
        self._process.communicate()

    def ended(self, seconds: float = 20) -> dict[str, Any]:
        """Waits for an orderly end: status 0, and the last line of its output."""
        output, errors = self._process.communicate(timeout=seconds)
        self._journal.deaths[self.pid] = time.monotonic()
        assert self._process.returncode == 0, errors
        assert "Traceback" not in errors, errors
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        return answer

    def stop(self) -> dict[str, Any]:
        """SIGTERM, and an orderly end."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def clear_away(self) -> None:
        """Ends it if it still runs."""
        if self._process.poll() is None:
            self.kill()


@contextlib.contextmanager
def processes(db: Database, journal: Journal, *, module: str = "tests.worker.program") -> Iterator[Any]:
    """Yields what starts a process; those that still run at the end are killed."""
    started: list[Process] = []

    def start(url: str | None = None, **options: Any) -> Process:
        process = Process(url or db.url, db.schema, journal, module=module, **options)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.clear_away()


def fill(db: pysqlbox.Deployment, count: int, *, groups: int = 0, sleep: float = 0.0) -> list[int]:
    """Messages that sleep a little, every second one in a group if there are groups; their ids."""
    records: list[dict[str, Any]] = [
        {
            "topic": "t",
            "payload": {"sleep": sleep},
            "group_id": f"g{n // 2 % groups}" if groups and n % 2 else None,
        }
        for n in range(count)
    ]
    return [made.id for made in db.outbox.enqueue_many(records)]


def done(db: Database) -> set[int]:
    """The messages that the outbox holds to be done."""
    rows = db.sql("SELECT id FROM {schema}.outbox_messages WHERE status = 'Done'")
    return {int(str(row["id"])) for row in rows}


def until_done(db: Database, ids: list[int], seconds: float = 30) -> None:
    """Waits until all of them are done."""
    until(lambda: set(ids) <= done(db), seconds, "all messages are done")


def until_ended(journal: Journal, count: int) -> None:
    """Waits until handlers have ended for that many messages."""
    until(lambda: len(set(journal.of("end"))) >= count, 20, f"{count} messages ended")


def check_acknowledged(db: Database, journal: Journal) -> None:
    """What is done in the box has ended in a handler. (What ends meanwhile may make it only safer.)"""
    acknowledged = done(db)
    ended = set(journal.of("end"))
    assert acknowledged <= ended, f"acknowledged and not finished: {sorted(acknowledged - ended)[:5]}"


def check_journal(db: Database, journal: Journal, ids: list[int]) -> None:
    """Nothing lost, nothing done that did not end, never two at once, and groups in order."""
    assert set(ids) <= done(db), "lost"
    check_acknowledged(db, journal)
    runs = journal.runs()
    for message, calls in runs.items():
        for (_, end, _), (begin, _, _) in itertools.pairwise(calls):
            assert end <= begin, f"message {message} was in two handlers at once"
    groups: dict[str, list[int]] = defaultdict(list)
    for line in journal.lines():
        if line.group is not None and line.what == "begin" and line.id not in groups[line.group]:
            groups[line.group].append(line.id)
    for group, order in groups.items():
        assert order == sorted(order), f"group {group} out of order"
        # Some may be handled again, in their order; but never is one begun while another one runs.
        calls = sorted(run for message in order for run in runs[message])
        for (_, end, _), (begin, _, _) in itertools.pairwise(calls):
            assert end <= begin, f"group {group} side by side"
        for first, second in itertools.pairwise(order):
            assert runs[first][0][1] <= runs[second][0][0], f"{second} began before {first} ended"
