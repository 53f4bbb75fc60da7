"""``pysqlbox cancel``."""

from __future__ import annotations

import json

import pytest

from pysqlbox.deployment import Deployment
from tests.cli.conftest import Run, kill


def test_cancel_calls_messages_off(run: Run, deployment: Deployment) -> None:
    ids = [deployment.outbox.enqueue("t", "p").id for _ in range(3)]
    assert run("cancel", ids[0], "--reason", "not \x1b wanted").output == "cancelled 1\n"
    message = deployment.outbox.get(ids[0])
    assert (message.status, message.last_error) == ("Cancelled", "not \x1b wanted")
    assert json.loads(run("cancel", *ids, ids[1], "--json").output) == {"cancelled": 2}
    assert run("cancel", *ids).output == "cancelled 0\n"
    listed = run("dead", "list").output
    assert listed.count("Cancelled") == 3
    assert run("replay", ids[0]).output == "replayed 1\n"


def test_cancel_of_a_named_box_passes_over_what_is_over(run: Run, deployment: Deployment) -> None:
    ids = kill(deployment, "1", "2", name="orders")
    assert run("cancel", "--box", "orders", *ids).output == "cancelled 0\n"
    assert json.loads(run("cancel", "--box", "orders", 10**12, "--json").output) == {"cancelled": 0}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("cancel",), "Missing argument"),
        (("cancel", "x"), "not a valid integer"),
        (("cancel", "0"), "not in the range"),
        (("cancel", "1", "--box", "nosuch"), "pysqlbox: box 'nosuch'"),
    ],
)
def test_bad_arguments(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in run(*arguments, code=2).stderr
