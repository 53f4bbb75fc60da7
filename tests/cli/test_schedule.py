"""``pysqlbox schedule``."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pysqlbox.deployment import Deployment
from tests.cli.conftest import Run


def test_a_schedule_is_set_listed_and_removed(run: Run, deployment: Deployment, tmp_path: Path) -> None:
    output = run(
        "schedule", "set", "nightly", "report", "{}", "--cron", "0 3 * * *", "--timezone", "Asia/Tokyo"
    ).output
    (made,) = deployment.schedules.list()
    assert made.next_at is not None
    assert (made.next_at.hour, made.next_at.minute) == (18, 0)
    assert output == f"nightly: next at {made.next_at:%Y-%m-%d %H:%M:%S} UTC\n"
    file = tmp_path / "payload"
    file.write_text("from a file")
    more: list[object] = ["--file", file, "--every", "5m", "--next-at", "2026-01-01T00:00:00Z"]
    more += ["--catch-up", 3, "--group-id", "g", "--priority", -2, "--header", "a=b", "--headers", '{"c": 1}']
    run("schedule", "set", "poll", "prices", *more)
    (_, poll) = deployment.schedules.list()
    assert (poll.every_seconds, poll.catch_up, poll.group_id, poll.priority) == (300, 3, "g", -2)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert poll.next_at == at
    fired = deployment.outbox.schedule_fire("poll", at)
    assert fired.id is not None
    message = deployment.outbox.get(fired.id)
    assert message.payload == "from a file"
    assert message.headers == {"a": "b", "c": 1, "scheduled_for": "2026-01-01T00:00:00Z"}
    listed = run("schedule", "list").output
    assert "0 3 * * *" in listed
    assert "every 0:05:00" in listed
    found = json.loads(run("schedule", "list", "--json").output)
    assert [each["name"] for each in found] == ["nightly", "poll"]
    assert run("schedule", "remove", "poll").output == "removed poll\n"
    assert json.loads(run("schedule", "remove", "nightly", "--json").output) == {"removed": "nightly"}
    assert "no such schedule" in run("schedule", "remove", "poll", code=2).stderr
    assert run("schedule", "list").stderr == "no schedules\n"
    assert json.loads(run("schedule", "list", "--json").output) == []


def test_what_is_disabled_or_not_worked_out_is_said(run: Run, deployment: Deployment) -> None:
    disabled = run("schedule", "set", "off\x1b", "t", "p", "--every", "1h", "--disabled", "--json").output
    assert json.loads(disabled)["enabled"] is False
    assert (
        run("schedule", "set", "off\x1b", "t", "p", "--every", "1h", "--disabled").output
        == "off\\x1b: disabled\n"
    )
    deployment.outbox.schedule_set("new", "t", "p", cron="0 3 * * *")
    listed = run("schedule", "list").output
    assert "a worker says" in listed
    assert "disabled" in listed
    assert "\x1b" not in listed


def test_schedules_of_a_named_outbox(run: Run, deployment: Deployment) -> None:
    run("schedule", "set", "s", "t", "p", "--every", "30s", "--box", "mail")
    assert [each.every_seconds for each in deployment.schedules.list(box="mail")] == [30]
    assert deployment.schedules.list() == []
    assert run("schedule", "remove", "s", "--box", "mail").output == "removed s\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("set", "s", "t", "p"), "give either --cron or --every"),
        (("set", "s", "t", "p", "--cron", "* * * * *", "--every", "1h"), "give either --cron or --every"),
        (("set", "s", "t", "p", "--cron", "* * *"), "pysqlbox: cron: must be five fields"),
        (("set", "s", "t", "p", "--cron", "* * * * *", "--timezone", "Nowhere"), "pysqlbox: timezone: "),
        (("set", "s", "t", "p", "--every", "0.5s"), "pysqlbox: every: must be whole seconds"),
        (("set", "s", "t", "p", "--every", "0s"), "pysqlbox: every_seconds: "),
        (("set", "s", "t", "p", "--every", "1h", "--headers", "[]"), "--headers"),
        (("set", "", "t", "p", "--every", "1h"), "pysqlbox: name: "),
        (("set", "s", "t", "p", "--every", "1h", "--box", "inbox"), "pysqlbox: box: 'inbox' is an inbox"),
        (("list", "--box", "nosuch"), "pysqlbox: box 'nosuch'"),
        (("remove",), "Missing argument"),
    ],
)
def test_bad_arguments(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in run("schedule", *arguments, code=2).stderr
