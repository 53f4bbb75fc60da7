"""``pysqlbox work --log-format``: a whole process's output, field by field, without any payload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pysqlbox.deployment import Deployment

ROOT = Path(__file__).parents[2]
SECRET = {"card": "4111-1111-1111-1111", "name": "Jemand Geheim"}
PIECES = ("4111", "Jemand", "Geheim")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MODULE = """
    import logging
    import time
    from dataclasses import dataclass

    from pysqlbox import DeadLetter, NonRetryable, Retry


    @dataclass
    class Card:
        number: int


    def make(db):
        worker = db.worker(threads=2, poll_seconds=0.05, max_attempts=2, handler_timeout=2)

        @worker.handler("good")
        def good(message):
            logging.getLogger("shop").info("handled")

        @worker.handler("raises")
        def raises(payload: dict):
            raise ValueError(f"cannot charge {payload['card']}")

        @worker.handler("never")
        def never(message):
            raise NonRetryable(message.payload)

        @worker.handler("again")
        def again(message):
            return Retry(delay=0.01, error=message.payload)

        @worker.handler("dead")
        def dead(message):
            return DeadLetter(message.payload)

        @worker.handler("typed")
        def typed(card: Card):
            pass

        @worker.handler("late")
        def late(message):
            time.sleep(3)

        @worker.handler("async")
        async def coroutine(payload: dict):
            raise KeyError(payload["name"])

        @worker.batch_handler("batch")
        def batch(messages):
            raise ValueError([message.payload for message in messages])

        return worker
"""
TOPICS = ("good", "raises", "never", "again", "dead", "typed", "late", "async", "batch", "nobody", "group")


def output(deployment: Deployment, folder: Path, url: str, *options: str) -> list[str]:
    """The lines that a worker writes which handles one message of each topic."""
    (folder / "shop_worker.py").write_text(textwrap.dedent(MODULE))
    for topic in TOPICS:
        deployment.outbox.enqueue(topic, SECRET, headers={"traceparent": TRACE, "card": SECRET["card"]})
    done = subprocess.run(
        [
            sys.executable, "-m", "pysqlbox", "work", "shop_worker:make", "--drain", "--log-level", "debug",
            "--schema", deployment.schema, *options,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSQLBOX_URL": url},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_json_has_a_field_for_everything_and_payloads_nowhere(
    deployment: Deployment, db: Any, tmp_path: Path
) -> None:
    lines = output(deployment, tmp_path, db.url, "--log-format", "json")
    records = [json.loads(line) for line in lines]
    assert all({"time", "level", "logger", "message"} <= set(record) for record in records)
    ours = [record for record in records if record["logger"].startswith("pysqlbox")]
    assert not [record for record in ours if {"deployment", "schema"} - set(record)]
    of_worker = [record for record in records if record["logger"] == "pysqlbox.worker"]
    of_messages = [record for record in records if "id" in record]
    assert {record["topic"] for record in of_messages} >= set(TOPICS) - {"group"}
    for record in of_messages:
        assert record["deployment"].endswith(deployment.schema)
        assert (record["schema"], record["box"]) == (deployment.schema, "outbox")
        assert record["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert record["attempt"] in (0, 1)
        assert len(record["message_id"]) == 36
    assert [record["topic"] for record in records if record["logger"] == "shop"] == ["good"]
    failed = {record["topic"]: record for record in of_worker if "exception" in record}
    assert set(failed) == {"raises", "never", "async", "batch"}
    assert failed["raises"]["exception"]["text"] == "cannot charge [payload]"
    assert not [(piece, line) for piece in PIECES for line in lines if piece in line]


@pytest.mark.dialect("postgres")
def test_text_shows_what_a_handler_s_own_exceptions_say_and_no_other_payload(
    deployment: Deployment, db: Any, tmp_path: Path
) -> None:
    """The worker itself adds nothing of a payload."""
    lines = output(deployment, tmp_path, db.url)
    assert "raises message" in "\n".join(lines)
    ours = [line for line in lines if " pysqlbox." in line]
    assert len(ours) >= len(TOPICS)
    assert not [(piece, line) for piece in PIECES for line in ours if piece in line]
