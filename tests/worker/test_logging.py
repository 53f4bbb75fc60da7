"""What the worker says, at which level, and what it never says."""

from __future__ import annotations

import logging
import threading

import pytest

import pysqlbox
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, nothing, put, put_many, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """What was said at a level by the package."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and record.name.startswith("pysqlbox")
    ]


def test_obx_098_ibx_110_handler_calls_are_logged_with_topic_and_message(
    box: Box, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """However they are called: alone, in groups, in batches, limited, by coroutines."""

    async def coroutine(_message: object) -> None:
        pass

    worker = make()
    worker.add_handler("plain", nothing)
    worker.add_handler("batch", nothing, batch=True)
    worker.add_handler("limited", nothing, concurrency=1)
    worker.add_handler("async", coroutine)
    made = {topic: put(box, topic) for topic in ("plain", "batch", "limited", "async")}
    made["plain "] = put(box, "plain", group_id="g")
    with caplog.at_level(logging.INFO):
        worker.drain()
    said = messages(caplog, logging.INFO)
    for topic, message in made.items():
        line = f"{box.name}: {topic.strip()} message {message}"
        assert len([text for text in said if text.startswith(line)]) == 1, line


def test_obx_099_ibx_111_exceptions_are_logged_as_errors_with_message_and_details(
    box: Box, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make()
    worker.add_handler("plain", Calls().handler(ValueError("what went wrong")))
    worker.add_handler("batch", Calls().handler(), batch=True)  # it takes no list: AttributeError
    made = [put(box, "plain"), put(box, "plain", group_id="g"), put(box, "batch")]
    worker.drain()
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(records) == 3
    for message in made:
        (record,) = [r for r in records if f"message {message}," in r.getMessage()]
        assert record.exc_info is not None
        assert box.name in record.getMessage()
    assert "what went wrong" in caplog.text
    assert "Traceback" in caplog.text


def test_obx_101_ibx_113_the_worker_names_the_store(
    db: Database, box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    """Its name in the log is the box's, as in everything else that the package logs."""
    with pysqlbox.connect(db.url, schema=db.schema, store="shop 7") as deployment:
        worker = deployment.worker(boxes=[box.name], reap_seconds=None, cleanup_seconds=None)
        worker.add_handler("t", Calls().handler(ValueError("x")))
        worker.add_handler("limited", nothing, concurrency=1)
        for topic in ("t", "unknown", "limited"):
            put(box, topic)
        with caplog.at_level(logging.DEBUG, "pysqlbox.worker"):
            worker.drain()
    said = [record.getMessage() for record in caplog.records if record.name == "pysqlbox.worker"]
    assert len(said) >= 5
    assert [text for text in said if "shop 7" not in text] == []


def test_obx_097_ibx_109_the_worker_logs_its_claims(
    box: Box, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(threads=1)
    worker.add_handler("t", nothing)
    put_many(box, 3)
    with caplog.at_level(logging.DEBUG, "pysqlbox.worker"):
        worker.drain()
    assert any(text.startswith(f"{box.name}: claimed 3 of ") for text in messages(caplog, logging.DEBUG))


def test_obx_119_ibx_127_no_payload_is_ever_logged(
    box: Box, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever happens to it: done, retried, dead, unknown, undecodable, overrun, released."""
    go = threading.Event()
    worker = make(handler_timeout=0.3)
    secret = "SECRET-4711"

    def typed(_number: int) -> None:
        pass

    handlers = {
        "ok": nothing, "typed": typed, "raise": Calls().handler(ValueError("x")),
        "dead": Calls().handler(pysqlbox.DeadLetter("d")), "nonsense": Calls().handler("nonsense"),
        "overrun": lambda _message: go.wait(10) and None,
    }  # fmt: skip
    for topic, handler in handlers.items():
        worker.add_handler(topic, handler)
        put(box, topic, payload=secret, headers={"h": secret})
    worker.add_handler("batch", lambda _messages: 17, batch=True)
    put(box, "batch", payload=secret, headers={"h": secret})
    put(box, "unknown", payload=secret, headers={"h": secret})
    with caplog.at_level(logging.DEBUG):
        worker.start()
        until(lambda: (worker.stats().handled, worker.stats().released) == (7, 1))
        go.set()
        worker.stop()
    assert len(caplog.records) > 10
    assert secret not in caplog.text
