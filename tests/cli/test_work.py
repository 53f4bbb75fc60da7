"""``pysqlbox work``: from a module's name to handled messages, and a graceful end."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import signal
import socket
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pysqlbox.deployment import Deployment
from pysqlbox.worker import Worker
from tests.cli.conftest import Run

work = importlib.import_module("pysqlbox.cli.work")
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of a name that is new into the current directory and answers the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    written: list[str] = []

    def module(text: str) -> str:
        name = f"written_{tmp_path.name.replace('-', '_')}_{len(written)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        written.append(name)
        importlib.invalidate_caches()
        return name

    yield module
    for name in written:
        for opened in getattr(sys.modules.pop(name, None), "opened", ()):
            opened.close()


MODULE = """
    import os
    import pysqlbox.deployment
    from pysqlbox.worker import Worker

    def make(box):
        worker = Worker(box, boxes=("outbox", "orders"), threads=2, poll_seconds=0.05, max_attempts=1)

        @worker.handler("good")
        def good(message):
            pass

        @worker.handler("bad")
        def bad(message):
            raise ValueError(message.payload)

        return worker

    opened = []

    def alone():
        opened.append(pysqlbox.deployment.connect(os.environ["PYSQLBOX_URL"]))
        return make(opened[-1])

    class shop:
        worker = None

    number = 5
"""


def _fill(db: Deployment) -> None:
    for _ in range(20):
        db.outbox.enqueue("good", "s3cr3t")
    db.outbox.enqueue("bad", "p")
    orders: Any = db.box("orders")
    orders.enqueue("good", source="s", message_id="m", payload="s3cr3t")


@pytest.mark.parametrize("attribute", ["make", "alone"])
def test_drain_handles_what_is_there_and_ends(
    run: Run, deployment: Deployment, write: Write, attribute: str
) -> None:
    _fill(deployment)
    result = run("work", f"{write(MODULE)}:{attribute}", "--drain", "--threads", 3)
    assert result.stdout == ""
    assert "21 done, 0 retried, 0 released, 1 dead in " in result.stderr
    assert "s3cr3t" not in result.output
    assert deployment.outbox.stats()[-1].done == 20


def test_a_worker_that_exists_and_one_within_a_class(run: Run, deployment: Deployment, write: Write) -> None:
    name = write(MODULE)
    sys.path.insert(0, os.getcwd())
    module: Any = importlib.import_module(name)
    module.existing = module.shop.worker = module.make(deployment)
    _fill(deployment)
    assert "21 done" in run("work", f"{name}:existing", "--drain", "--threads", 7).stderr
    assert module.existing.threads == 7
    assert "21 done" in run("work", f"{name}:shop.worker", "--drain").stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gracefully(run: Run, deployment: Deployment, write: Write, number: int) -> None:
    _fill(deployment)

    def stop_when_done() -> None:
        deadline = time.monotonic() + 20
        while deployment.outbox.stats()[-1].done < 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    watcher = threading.Thread(target=stop_when_done)
    watcher.start()
    result = run("work", f"{write(MODULE)}:make", "--log-level", "warning")
    watcher.join()
    assert " done, " in result.stderr
    assert deployment.outbox.stats()[-1].ready == deployment.outbox.stats()[-1].in_flight == 0


@pytest.mark.dialect("postgres")
def test_what_is_no_worker_is_said(run: Run, write: Write) -> None:
    name = write(MODULE)
    for target, reason in (
        ("nocolon", "must be module:name"),
        (":worker", "must be module:name"),
        (f"{name}:", "must be module:name"),
        ("no_such_module_of_ours:worker", "there is no module 'no_such_module_of_ours'"),
        (f"{name}.below:worker", "there is no module"),
        (f"{name}:missing", "has no 'missing'"),
        (f"{name}:number", "must be a Worker or a function that answers one, not int"),
        (f"{name}:shop.worker", "not NoneType"),
    ):
        assert reason in " ".join(run("work", target, code=2).stderr.split())
    refused = run("work", f"{name}:alone", "--schema", "other", code=2)
    assert "--schema: is for a function that takes a Deployment" in refused.stderr
    assert "pysqlbox: " in run("work", f"{name}:make", "--schema", "nosuch", "--drain", code=2).stderr


@pytest.mark.dialect("postgres")
def test_a_modules_own_faults_are_not_hidden(run: Run, write: Write) -> None:
    name = write("import no_such_library_of_theirs")
    with pytest.raises(AssertionError, match="1 == 2"):
        run("work", f"{name}:worker", code=2)


@pytest.mark.dialect("postgres")
def test_the_live_line_is_for_terminals(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(deployment, threads=4)
    with work._live_line(worker):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(work, "REFRESH", 0.01)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with work._live_line(worker):
        time.sleep(0.2)
    shown = capsys.readouterr().err
    assert "\r\x1b[K0 done, 0 retried, 0 released, 0 dead · 0 of 4 busy · 0/s" in shown
    assert shown.endswith("\r\x1b[K")


def test_logging_that_is_set_up_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    mine = logging.NullHandler()
    root.handlers[:] = [mine]
    try:
        with work.logging_to_stderr("debug"):
            assert root.handlers == [mine]
        root.handlers.clear()
        with work.logging_to_stderr("info"):
            logging.getLogger("theirs").info("hello")
        assert root.handlers == []
        assert "INFO    theirs: hello" in capsys.readouterr().err
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_metrics_are_served_while_it_runs(run: Run, deployment: Deployment, write: Write) -> None:
    """The address that the first line names is asked until the work is told of; then a signal ends it."""
    _fill(deployment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told: list[str] = []

    def look() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                    told.append(answer.read().decode())
                if re.search(r'settled_messages_total\{.*topic="good",outcome="acked"\} 20\n', told[-1]):
                    break
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=look)
    watcher.start()
    result = run("work", f"{write(MODULE)}:make", "--metrics", f"127.0.0.1:{port}", "--log-level", "warning")
    watcher.join()
    assert f"metrics: http://127.0.0.1:{port}/metrics\n" in result.stderr
    assert 'outcome="acked"} 20\n' in told[-1]
    assert "pysqlbox_up 1\n" in told[-1]
    assert "s3cr3t" not in told[-1]


@pytest.mark.dialect("postgres")
def test_metrics_that_cannot_be_served_are_said(run: Run, write: Write) -> None:
    target = f"{write(MODULE)}:make"
    assert "must be a port or host:port" in run("work", target, "--metrics", "nowhere:x", code=2).output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "in use" in run("work", target, "--metrics", f"127.0.0.1:{port}", code=2).output
