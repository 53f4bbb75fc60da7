"""``pysqlbox dead`` and ``pysqlbox replay``."""

from __future__ import annotations

import json
import sys

import pytest

from pysqlbox.deployment import Deployment
from tests.cli.conftest import Run, kill


def test_list_shows_the_dead_without_their_payloads(run: Run, deployment: Deployment) -> None:
    ids = kill(deployment, "s3cr3t", "s3cr3t", error="first line\nsecond \x1b[31mline")
    result = run("dead", "list")
    assert "s3cr3t" not in result.output
    assert "\x1b" not in result.output
    header, first, second = result.output.splitlines()
    assert header.split()[:2] == ["id", "topic"]
    assert first.split()[0] == str(ids[0])
    assert "first line second \\x1b[31mline" in second
    page = run("dead", "list", "--limit", 1)
    assert page.stderr == f"more with --after {ids[0]}\n"
    assert str(ids[1]) in run("dead", "list", "--after", ids[0]).output
    found = json.loads(run("dead", "list", "--json").output)
    assert [each["id"] for each in found] == ids
    assert found[0]["last_error"].startswith("first line")
    assert not {"payload", "headers"} & set(found[0])


def test_list_of_nothing_ends_with_1(run: Run, deployment: Deployment) -> None:
    assert run("dead", "list").stderr == "no dead letters\n"
    kill(deployment, "p")
    assert json.loads(run("dead", "list", "--topic", "other", "--json").output) == []


def test_causes_are_one_row_a_fault(run: Run, deployment: Deployment) -> None:
    ids = kill(deployment, "s3cr3t", "s3cr3t", error="customer 4711 has no [31maddress\nTraceback")
    ids += kill(deployment, "s3cr3t", error="timeout")
    header, first, second = run("dead", "causes").output.splitlines()
    assert header.split()[:2] == ["messages", "topic"]
    assert first.split()[:2] == ["2", "t"]
    assert "has no" in first
    assert "\x1b" not in first
    assert second.split()[0] == "1"
    assert "timeout" in second
    found = json.loads(run("dead", "causes", "--json").output)
    assert [(each["messages"], each["sample_id"] in ids) for each in found] == [(2, True), (1, True)]
    assert len(json.loads(run("dead", "causes", "--limit", 1, "--json").output)) == 1
    assert "s3cr3t" not in run("dead", "causes").output


def test_causes_of_nothing_end_with_1(run: Run) -> None:
    assert run("dead", "causes").stderr == "no dead letters\n"


@pytest.mark.parametrize("name", ["outbox", "orders"])
def test_show_shows_a_message_whole(run: Run, deployment: Deployment, name: str) -> None:
    payload = '{"a": "\x1b[31m 🐘"}\n'
    (identity,) = kill(deployment, payload, name=name)
    shown = run("dead", "show", "--box", name, identity).output
    assert '{"a": "\\x1b[31m 🐘"}\n' in shown
    assert "last_error      it failed" in shown
    assert f"id              {identity}" in shown
    assert run("dead", "show", "--box", name, identity, "--payload").stdout_bytes == payload.encode()
    found = json.loads(run("dead", "show", "--box", name, identity, "--json").output)
    assert (found["id"], found["payload"]) == (identity, payload)
    missing = run("dead", "show", identity + 1, "--box", name, code=2)
    assert missing.stderr.startswith("pysqlbox: ")


@pytest.mark.parametrize("command", [("dead", "replay"), ("replay",)])
def test_replay_brings_messages_back(run: Run, deployment: Deployment, command: tuple[str, ...]) -> None:
    ids = kill(deployment, "1", "2", "3")
    assert run(*command, ids[0]).output == "replayed 1\n"
    assert deployment.outbox.get(ids[0]).status == "Ready"
    assert run(*command, "--all", "--topic", "other").output == "replayed 0\n"
    assert json.loads(run(*command, "--all", "--json").output) == {"replayed": 2}
    assert run(*command, 10**12).output == "replayed 0\n"
    assert "only dead messages" in run(*command, ids[0], code=2).stderr


def test_discard_deletes_after_asking(run: Run, deployment: Deployment) -> None:
    ids = kill(deployment, "1", "2", "3", name="orders")
    common = ("dead", "discard", "--box", "orders")
    refused = run(*common, ids[0], input="n\n", code=1)
    assert "delete 1 dead letters of orders for good?" in refused.stderr
    assert run(*common, ids[0], input="y\n").stdout.endswith("discarded 1\n")
    assert run(*common, ids[1], "--yes").output == "discarded 1\n"
    assert run(*common, "--all", "--yes", "--topic", "other").output == "discarded 0\n"
    assert json.loads(run(*common, "--all", "--yes", "--json").output) == {"discarded": 1}
    assert run("dead", "list", "--box", "orders").stderr == "no dead letters\n"


def test_more_than_a_page(run: Run, deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["pysqlbox.cli.dead"], "PAGE", 2)  # the package's attribute is the command
    kill(deployment, *"12345")
    assert run("replay", "--all").output == "replayed 5\n"
    kill(deployment)
    assert run("dead", "discard", "--all", "--yes").output == "discarded 5\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("dead", "replay"), "give either ids or --all"),
        (("dead", "replay", "1", "--all"), "give either ids or --all"),
        (("dead", "discard", "1", "--topic", "t"), "--topic goes with --all"),
        (("dead", "replay", "x"), "not a valid integer"),
        (("dead", "show", str(2**63)), "not in the range"),
        (("dead", "list", "--box", "nosuch"), "pysqlbox: box 'nosuch'"),
        (("dead", "list", "--limit", "0"), "not in the range"),
    ],
)
def test_bad_arguments(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in run(*arguments, code=2).stderr
