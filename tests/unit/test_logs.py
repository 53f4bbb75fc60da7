"""Records as JSON: what they are about stands in fields of its own, and nothing shows a payload."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import pysqlbox
from pysqlbox import logs, testing
from pysqlbox.logs import JsonFormatter, about, handling

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Lines(logging.Handler):
    """Keeps the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.raw: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.raw.append(self.format(record))

    @property
    def all(self) -> list[dict[str, Any]]:
        """The lines, read."""
        return [json.loads(line) for line in self.raw]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What is logged meanwhile."""
    found, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(found)
    root.setLevel(logging.DEBUG)
    yield found
    root.removeHandler(found)
    root.setLevel(level)


def test_a_record_is_one_line(lines: Lines) -> None:
    """With its fields and what the application adds, whatever that is."""
    logging.getLogger("shop").warning(
        "two\nlines of %s", "text", extra={"box": "outbox", "order": {1}, "n": 17}
    )
    (line,) = lines.all
    assert "\n" not in lines.raw[0]
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning", "logger": "shop", "message": "two\nlines of text", "box": "outbox",
        "order": "{1}", "n": 17,
    }  # fmt: skip


def test_an_exception_is_a_field(lines: Lines) -> None:
    try:
        raise KeyError("x")
    except KeyError:
        logging.getLogger("shop").exception("no")
    found = lines.all[0]["exception"]
    assert (found["type"], found["text"]) == ("KeyError", "'x'")
    assert found["stack"].startswith("Traceback (most recent call last):\n")


def test_what_a_message_is_about() -> None:
    """Never its payload nor its headers, but for the trace."""
    message = testing.message("mail", "secret", attempt=3, headers={"traceparent": TRACE, "token": "hidden"})
    assert about(message) == {
        "topic": "mail", "id": message.id, "message_id": str(message.message_id), "attempt": 3,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    }  # fmt: skip
    for header in ("nonsense", 17, None):
        assert "trace_id" not in about(testing.message("mail", "", headers={"traceparent": header}))


def test_records_of_an_application_are_about_what_it_handles(lines: Lines) -> None:
    """Within a handler, also of libraries that know nothing of us; and not behind it."""
    worker = pysqlbox.connect("postgresql://nowhere", schema="shop").worker()

    @worker.handler("mail")
    def send(_mail: dict[str, Any]) -> None:
        logging.getLogger("smtp").info("sent")

    message = testing.message("mail", {"to": "ann"}, headers={"traceparent": TRACE})
    testing.handle(worker, message)
    logging.getLogger("smtp").info("closed")
    sent, closed = (line for line in lines.all if line["logger"] == "smtp")
    fields = {name: sent[name] for name in ("schema", "box", "topic", "id", "attempt", "trace_id")}
    assert fields == {
        "schema": "shop", "box": "outbox", "topic": "mail", "id": message.id, "attempt": 0,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    }  # fmt: skip
    assert "topic" not in closed


def test_a_coroutine_s_records_are_about_its_own_message(lines: Lines) -> None:
    worker = pysqlbox.connect("postgresql://nowhere").worker()

    @worker.handler("mail")
    async def send(_mail: dict[str, Any]) -> None:
        logging.getLogger("smtp").info("sent")

    message = testing.message("mail", {"to": "ann"})
    testing.handle(worker, message)
    (sent,) = (line for line in lines.all if line["logger"] == "smtp")
    assert sent["id"] == message.id


def test_payloads_show_nowhere(lines: Lines) -> None:
    """Not in what a handler raises or logs, nor in what is wrong with its payload."""
    secret = {"card": "4111-1111-1111-1111", "pin": 98765, "deep": ["gehe\u00efm wort"]}
    pieces = ["4111", "98765", "gehe", "wort", "heimlich"]
    worker = pysqlbox.connect("postgresql://nowhere").worker()

    @worker.handler("fails")
    def fail(payload: dict[str, Any]) -> None:
        logging.getLogger("shop").warning("charging %s", payload["card"])
        logging.getLogger("shop").warning("it is", extra={"order": {"pin": payload["pin"]}})
        raise ValueError(f"cannot charge {payload}")

    @worker.handler("chained")
    def chain(payload: dict[str, Any]) -> None:
        try:
            int(payload["card"])
        except ValueError as error:
            raise pysqlbox.NonRetryable("no number") from error

    @worker.handler("text")
    def text(message: pysqlbox.OutboxMessage) -> None:
        raise KeyError(message.payload)

    @worker.handler("typed")
    def typed(number: int) -> None:
        raise AssertionError(number)

    for topic in ("fails", "chained", "typed"):
        testing.handle(worker, testing.message(topic, secret))
    testing.handle(worker, testing.message("text", "streng heimlich"))
    assert len(lines.all) >= 7
    output = "\n".join(lines.raw)
    assert "[payload]" in output
    assert not [piece for piece in pieces if piece in output]
    kinds = {line["exception"]["type"] for line in lines.all if "exception" in line}
    assert kinds == {"ValueError", "pysqlbox.worker.results.NonRetryable", "KeyError"}


def test_it_costs_nothing_without_a_formatter() -> None:
    """Nothing is noted once the last one is gone."""
    gc.collect()
    before = logs._formatters
    formatter = JsonFormatter()
    assert logs.is_watched()
    assert logs._formatters == before + 1
    del formatter
    gc.collect()
    assert logs._formatters == before


def test_a_batch_is_about_its_topic(lines: Lines) -> None:
    messages = [testing.message("mail", "one"), testing.message("mail", "two")]
    with handling({"box": "outbox"}, messages):
        logging.getLogger("smtp").info("sent")
    (line,) = lines.all
    assert (line["box"], line["topic"]) == ("outbox", "mail")
    assert "id" not in line
