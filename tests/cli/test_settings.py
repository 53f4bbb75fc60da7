"""``pysqlbox pause``, ``resume`` and ``configure``."""

from __future__ import annotations

import json

import pytest

from pysqlbox.deployment import Deployment
from tests.cli.conftest import OWNER, Run


def test_a_topic_is_paused_and_resumed(run: Run, deployment: Deployment) -> None:
    deployment.outbox.enqueue("a", "p")
    other = deployment.outbox.enqueue("b", "p")
    assert run("pause", "a").output == "paused a of outbox\n"
    assert run("pause", "a").output == "a of outbox: nothing to do\n"
    assert [each.id for each in deployment.outbox.claim(OWNER)] == [other.id]
    assert json.loads(run("resume", "a", "--json").output) == {"resumed": 1}
    assert json.loads(run("resume", "a", "--json").output) == {"resumed": 0}
    assert len(deployment.outbox.claim(OWNER)) == 1


def test_a_whole_box_is_paused_and_resumed(run: Run, deployment: Deployment) -> None:
    deployment.outbox.enqueue("a", "p")
    assert run("pause").output == "paused outbox\n"
    assert run("pause", "--box", "orders").output == "paused orders\n"
    assert deployment.outbox.claim(OWNER) == []
    assert run("resume", "a\x1b").output == "a\\x1b of outbox: nothing to do\n"
    assert run("resume").output == "resumed outbox\n"
    assert len(deployment.outbox.claim(OWNER)) == 1
    assert run("resume", "--box", "orders").output == "resumed orders\n"


def test_a_setting_is_changed_and_printed_as_it_is_kept(run: Run, deployment: Deployment) -> None:
    assert run("configure", "max_attempts", "7").output == "max_attempts = 7\n"
    assert json.loads(run("configure", "notify", "off", "--json").output) == {"notify": "off"}
    made = deployment.outbox.enqueue("t", "p")
    deployment.outbox.claim(OWNER)
    assert run("configure", "max_attempts", "1").output == "max_attempts = 1\n"
    assert deployment.outbox.retry(OWNER, [made.id]).dead == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("configure",), "Missing argument"),
        (("configure", "max_attempts"), "Missing argument"),
        (("configure", "nosuch", "1"), "name"),
        (("configure", "max_attempts", "x"), "value"),
        (("pause", ""), "topic"),
        (("resume", "x" * 256), "topic"),
        (("pause", "--box", "nosuch"), "pysqlbox: box 'nosuch'"),
    ],
)
def test_bad_arguments(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in run(*arguments, code=2).stderr
