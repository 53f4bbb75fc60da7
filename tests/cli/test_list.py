"""``pysqlbox list``."""

from __future__ import annotations

import json

import pytest

from pysqlbox.deployment import Deployment
from tests.cli.conftest import OWNER, Run, kill


def test_list_shows_the_messages_of_a_status(run: Run, deployment: Deployment) -> None:
    ids = [
        deployment.outbox.enqueue("a", "secret", group_id=f"g{number}", headers={"h": "hidden"}).id
        for number in range(3)
    ]
    output = run("list", "Ready").output
    assert [line.split()[0] for line in output.splitlines()[1:]] == [str(each) for each in ids]
    assert "g1" in output
    assert "secret" not in output
    assert "hidden" not in output
    rows = json.loads(run("list", "Ready", "--json").output)
    assert [row["id"] for row in rows] == ids
    assert {"payload", "headers"}.isdisjoint(rows[0])
    assert rows[0]["status"] == "Ready"
    assert run("list", "InProgress").stderr == "no such messages\n"
    assert json.loads(run("list", "Done", "--json").output) == []


def test_list_is_paged_and_filtered(run: Run, deployment: Deployment) -> None:
    ids = [deployment.outbox.enqueue(topic, "p", group_id=topic.upper()).id for topic in "abab"]
    first = run("list", "Ready", "--limit", "2")
    assert f"more with --after {ids[1]}" in first.stderr
    rest = json.loads(run("list", "Ready", "--after", ids[1], "--json").output)
    assert [row["id"] for row in rest] == ids[2:]
    for option, value in (("--topic", "b"), ("--group", "B")):
        rows = json.loads(run("list", "Ready", option, value, "--json").output)
        assert [row["id"] for row in rows] == ids[1::2]
    assert run("list", "Ready", "--topic", "b", "--group", "A").stderr == "no such messages\n"


def test_list_of_a_named_box_hides_what_a_terminal_would_obey(run: Run, deployment: Deployment) -> None:
    kill(deployment, "1", name="orders", error="\x1b[31m red")
    output = run("list", "Dead", "--box", "orders").output
    assert "\x1b" not in output
    assert "red" in output
    claimed = deployment.outbox.enqueue("t", "p")
    assert [each.id for each in deployment.outbox.claim(OWNER)] == [claimed.id]
    assert str(claimed.id) in run("list", "InProgress").output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("list",), "Missing argument"),
        (("list", "ready"), "status: must be Ready"),
        (("list", "Seen"), "status: must be Ready"),
        (("list", "Ready", "--limit", "0"), "not in the range"),
        (("list", "Ready", "--box", "nosuch"), "pysqlbox: box 'nosuch'"),
    ],
)
def test_bad_arguments(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in run(*arguments, code=2).stderr
