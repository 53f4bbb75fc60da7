"""``pysqlbox enqueue``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pysqlbox.deployment import Deployment
from tests.cli.conftest import OWNER, Run

HOSTILE = (
    'it\'s "quoted" `so`',
    "'; DROP TABLE infra.message; --",
    "100% %s :name ? @p $1 {{ box }}",
    "\\ \\n \\u0041",
    "line\nbreak\r\nand\ttab\n",
    "\x1b[31mred\x1b[0m",
    "emoji 🐘 and 漢字",
    "trailing  ",
    "",
)


@pytest.mark.parametrize("payload", HOSTILE)
def test_a_payload_arrives_as_it_is(run: Run, deployment: Deployment, payload: str, tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(payload.encode())
    run("enqueue", "t", "--", payload)
    run("enqueue", "t", "--file", file)
    run("enqueue", "t", input=payload.encode())
    run("enqueue", "t", "--file", "-", input=payload.encode())
    assert [message.payload for message in deployment.outbox.claim(OWNER)] == [payload] * 4


def test_every_option_of_an_outbox_arrives(run: Run, deployment: Deployment) -> None:
    identity = uuid4()
    result = run(
        "enqueue", "t", "p", "--message-id", identity, "--correlation-id", "c", "--group-id", "g",
        "--priority", -5, "--dedup-key", "d", "--collapse-key", "k", "--due-at", "2020-01-01T00:00:00+02:00",
        "--expires-at", "2999-01-01", "--headers", '{"a": 1, "b": "x"}', "--header", "b=y=z", "--created-at",
        "2019-01-01T00:00:00Z",
    )  # fmt: skip
    stored = deployment.outbox.find(identity)
    assert stored is not None
    assert result.output == f"created: id {stored.id}, message id {identity}\n"
    assert stored.correlation_id == "c"
    assert stored.group_id == "g"
    assert stored.priority == -5
    assert stored.dedup_key == "d"
    assert stored.collapse_key == "k"
    assert stored.due_at == datetime(2019, 12, 31, 22, tzinfo=UTC)
    assert stored.expires_at == datetime(2999, 1, 1, tzinfo=UTC)
    assert stored.created_at == datetime(2019, 1, 1, tzinfo=UTC)
    assert stored.headers == {"a": 1, "b": "y=z"}
    again = json.loads(run("enqueue", "t", "p", "--dedup-key", "d", "--json").output)
    assert again == {"id": stored.id, "message_id": str(identity), "outcome": "duplicate"}


def test_every_option_of_an_inbox_arrives(run: Run, deployment: Deployment) -> None:
    common = ("enqueue", "t", "--box", "orders", "--source", "s", "--message-id", "m")
    found = json.loads(
        run(*common, "p", "--hash", "00ff", "--created-at", "2019-01-01T00:00:00Z", "--json").output
    )
    assert (found["outcome"], found["hash_mismatch"]) == ("created", False)
    stored: Any = deployment.box("orders").get(found["id"])
    assert (stored.source, stored.message_id, stored.hash) == ("s", "m", b"\x00\xff")
    assert stored.first_seen_at == datetime(2019, 1, 1, tzinfo=UTC)
    output = run(*common, "q", "--hash", "ff00").output
    assert output == f"updated: id {found['id']} (its hash differs from the one known)\n"


def test_delays_count_from_now(run: Run, deployment: Deployment) -> None:
    identity = uuid4()
    run("enqueue", "t", "p", "--message-id", identity, "--delay", "10m", "--expires-in", "1.5h")
    stored = deployment.outbox.find(identity)
    assert stored is not None
    assert stored.due_at is not None
    assert stored.expires_at is not None
    assert timedelta(minutes=9) < stored.due_at - datetime.now(UTC) < timedelta(minutes=11)
    assert timedelta(minutes=79) < stored.expires_at - stored.due_at < timedelta(minutes=81)


def test_each_line_is_a_message(run: Run, deployment: Deployment, tmp_path: Path) -> None:
    assert run("enqueue", "t", "--lines", input='{"a": 1}\r\n\n  b  \nlast').output == "enqueued 3\n"
    assert [message.payload for message in deployment.outbox.claim(OWNER)] == ['{"a": 1}', "  b  ", "last"]
    file = tmp_path / "lines"
    file.write_text("x\n" * 2500)
    result = run("enqueue", "t", "--lines", "--file", file, "--group-id", "g", "--json")
    assert json.loads(result.output) == {"enqueued": 2500}
    assert deployment.outbox.stats()[-1].ready == 2500
    assert run("enqueue", "t", "--lines", input="").output == "enqueued 0\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--due-at", "tomorrow"), "must be an ISO 8601 time"),
        (("--delay", "soon"), "must be a number of seconds"),
        (("--delay", "999999999w"), "is too long"),
        (("--delay", "200000w"), "delay_seconds: must be from 0 to 1000000000"),
        (("--expires-in", "200000w"), None),
        (("--expires-in", "500000w"), "--expires-in: is too long"),
        (("--delay", "1s", "--due-at", "2020-01-01"), "give either --due-at or --delay"),
        (("--hash", "zz"), "--hash: must be hex"),
        (("--hash", "00"), "--hash: an outbox has none"),
        (("--source", "s"), "--source: an outbox has none"),
        (("--message-id", "5"), "must be a UUID"),
        (("--headers", "[]"), "must be a JSON object"),
        (("--headers", "{"), "must be a JSON object"),
        (("--header", "novalue"), "must be NAME=VALUE"),
        (("--priority", "40000"), "40000 is not in the range"),
        (("--lines",), "--lines goes without PAYLOAD"),
        (("--file", "/no/such/file"), "does not exist"),
        (("--box", "orders"), "--source: an inbox needs it"),
        (("--box", "orders", "--source", "s"), "--message-id: an inbox needs it"),
        (("--box", "orders", "--source", "s", "--message-id", "m", "--dedup-key", "d"), "an inbox has none"),
        (("--box", "nosuch"), "pysqlbox: box 'nosuch'"),
        (("--schema", "nosuch"), "pysqlbox: "),
        (("--group-id", "x" * 256), "pysqlbox: group_id"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    run: Run, deployment: Deployment, arguments: tuple[str, ...], reason: str | None
) -> None:
    if reason is None:
        run("enqueue", "t", "p", *arguments)
        return
    result = run("enqueue", "t", "s3cr3t", *arguments, code=2)
    assert reason in result.stderr
    assert "s3cr3t" not in result.output
    assert deployment.outbox.stats()[-1].ready == deployment.box("orders").stats()[-1].ready == 0


def test_content_that_is_no_text_is_refused_without_showing_it(run: Run, deployment: Deployment) -> None:
    result = run("enqueue", "t", input=b"s3cr3t \xff", code=2)
    assert "the payload is not UTF-8 text" in result.stderr
    result = (
        run("enqueue", "t", input=b"s3cr3t \x00", code=2)
        if deployment.target.dialect == "postgres"
        else result
    )
    assert "s3cr3t" not in result.output
    assert run("enqueue", "", "s3cr3t", code=2).stderr.startswith("pysqlbox: topic")
