"""The command line on the database of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

import pysqlbox.deployment
from pysqlbox.cli import cli
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
Run = Callable[..., Result]


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The deployment of the test."""
    with pysqlbox.deployment.connect(db.url, schema=db.schema) as found:
        yield found


@pytest.fixture
def run(db: Database, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on that deployment; it must end with the exit code that the test expects."""
    monkeypatch.setenv("PYSQLBOX_URL", db.url)

    def command(*arguments: object, code: int = 0, **options: Any) -> Result:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments], **options)
        assert result.exit_code == code, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return command


def kill(
    db: pysqlbox.Deployment, *payloads: str, name: str = "outbox", error: str = "it failed"
) -> list[int]:
    """Enqueue messages and give each of them up."""
    queue: Any = db.box(name)
    for number, payload in enumerate(payloads):
        more = {"source": "s", "message_id": f"m-{number}"} if queue.kind == "inbox" else {}
        queue.enqueue(topic="t", payload=payload, **more)
    ids = [message.id for message in queue.claim(OWNER, batch_size=100)]
    queue.fail(OWNER, ids, error)
    return ids
