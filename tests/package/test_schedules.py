"""db.schedules: rules and zones are read, what is left out is worked out by the server's clock."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import pysqlbox
from pysqlbox import InvalidArgument, NotFound
from pysqlbox.drivers import Values
from pysqlbox.schedules import ScheduleMethods
from pysqlbox.steps import Call, drive
from tests.support.database import Database

PAST = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
FUTURE = datetime(2126, 3, 1, 2, 30, tzinfo=UTC)


def test_contract_set_works_the_next_time_out(deployment: pysqlbox.Deployment, db: Database) -> None:
    db.advance(40 * 86_400)
    now = deployment.outbox.schedule_next().now_at
    made = deployment.schedules.set("s", "t", {"a": 1}, cron="30 2 * * *", timezone="Europe/Berlin")
    assert made.next_at is not None
    local = made.next_at.astimezone(ZoneInfo("Europe/Berlin"))
    assert (local.hour, local.minute) in ((2, 30), (3, 0))
    assert timedelta(0) < made.next_at - now <= timedelta(hours=26), "by the server's clock"
    assert deployment.schedules.list() == [made]
    assert (made.name, made.topic, made.cron, made.timezone) == ("s", "t", "30 2 * * *", "Europe/Berlin")
    every = deployment.schedules.set(
        "e", "t", "p", every=timedelta(minutes=5), box="mail", catch_up=0, priority=3
    )
    assert deployment.schedules.list(box="mail") == [every]
    minute: Any = Decimal("60.0")
    assert deployment.schedules.set("d", "t", "p", every=minute).every_seconds == 60
    assert (every.every_seconds, every.catch_up, every.priority, every.enabled) == (300, 0, 3, True)


def test_contract_setting_again_keeps_the_time_and_another_rule_does_not(
    deployment: pysqlbox.Deployment,
) -> None:
    rule: dict[str, Any] = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    assert deployment.schedules.set("s", "t", "p", **rule, next_at=PAST).next_at == PAST
    assert deployment.schedules.set("s", "other", "new", **rule).next_at == PAST
    assert deployment.schedules.set("s", "t", "p", **rule, next_at=FUTURE).next_at == FUTURE
    worked_out = deployment.schedules.set("s", "t", "p", cron="31 2 * * *", timezone="Europe/Berlin")
    assert worked_out.next_at is not None
    assert PAST < worked_out.next_at < FUTURE
    assert deployment.schedules.set("s", "t", "p", cron="31 2 * * *", enabled=False).next_at is None
    again = deployment.schedules.set("s", "t", "p", cron="31 2 * * *")
    assert again.next_at is not None
    assert deployment.schedules.list() == [again]


def test_contract_set_and_remove_join_the_callers_transaction(deployment: pysqlbox.Deployment) -> None:
    with deployment.transaction() as connection:
        made = deployment.schedules.set("s", "t", "p", cron="* * * * *", connection=connection)
        assert deployment.schedules.list(connection=connection) == [made]
        connection.rollback()
    assert deployment.schedules.list() == []
    with deployment.transaction() as connection:
        deployment.schedules.set("s", "t", "p", cron="* * * * *", connection=connection)
    assert len(deployment.schedules.list()) == 1
    with deployment.transaction() as connection:
        deployment.schedules.remove("s", connection=connection)
    assert deployment.schedules.list() == []
    with pytest.raises(NotFound):
        deployment.schedules.remove("s")


def test_contract_an_outboxs_own_methods_are_its_routines(deployment: pysqlbox.Deployment) -> None:
    made = deployment.outbox.schedule_set(
        "s", "t", {"a": [1]}, cron="not read here", next_at=PAST, headers={"x": 1}
    )
    assert deployment.outbox.schedule_due() == [made]
    fired = deployment.outbox.schedule_fire("s", PAST, FUTURE)
    assert fired
    assert fired.id is not None
    message = deployment.outbox.get(fired.id)
    assert message.message_id == fired.message_id
    assert message.headers == {"x": 1, "scheduled_for": "2026-03-01T02:30:00Z"}
    assert message.payload == '{"a":[1]}'
    assert not deployment.outbox.schedule_fire("s", PAST, FUTURE)
    assert deployment.outbox.schedule_skip("s", FUTURE, FUTURE + timedelta(days=1)) == 1
    clock = deployment.outbox.schedule_next()
    assert (clock.is_due, clock.next_at) == (False, FUTURE + timedelta(days=1))
    assert deployment.outbox.schedule_remove("s") == 1
    assert repr(deployment.schedules).startswith("<pysqlbox.Schedules of ")


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("cron", {}),
        ("cron", {"cron": "* * * * *", "every": 60}),
        ("cron", {"cron": "* * * *"}),
        ("cron", {"cron": "0 0 31 2 *"}),
        ("timezone", {"cron": "* * * * *", "timezone": "Europe/Nowhere"}),
        ("timezone", {"every": 60, "timezone": ""}),
        ("every", {"every": 1.5}),
        ("every", {"every": Decimal("1.5")}),
        ("every", {"every": 0}),
        ("every", {"every": "5m"}),
        ("next_at", {"every": 60, "next_at": datetime(2026, 1, 1)}),
        ("catch_up", {"every": 60, "catch_up": -1}),
        ("catch_up", {"every": 60, "catch_up": True}),
        ("priority", {"every": 60, "priority": 40_000}),
        ("headers", {"every": 60, "headers": "[]"}),
        ("box", {"every": 60, "box": "inbox"}),
    ],
)
def test_contract_bad_arguments_are_refused(
    deployment: pysqlbox.Deployment, argument: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{argument}"):
        deployment.schedules.set("s", "t", "p", **given)
    assert deployment.schedules.list() == []


def test_of_two_who_set_it_at_once_the_last_ones_rule_has_its_own_time(
    deployment: pysqlbox.Deployment,
) -> None:
    """The first one works its time out meanwhile; the schedule would fire at that, by the other's rule."""

    def perform(call: Call[Any]) -> list[Values]:
        rows = deployment.perform(call)
        if call.routine == "outbox_schedule_next":
            deployment.outbox.schedule_set("s", "t", "p", cron="* * * * *")
        return rows

    slow = ScheduleMethods.set.steps(deployment.schedules, "s", "t", "p", cron="0 0 1 1 *")
    found = drive(slow, perform)
    assert (found.cron, found.next_at) == ("* * * * *", None)
    made = deployment.schedules.set("s", "t", "p", cron="* * * * *")
    assert made.next_at is not None
    assert made.next_at - deployment.outbox.schedule_next().now_at <= timedelta(minutes=1)
    assert deployment.schedules.list() == [made]


def test_a_box_that_is_not_there(deployment: pysqlbox.Deployment) -> None:
    with pytest.raises(NotFound):
        deployment.schedules.list(box="nosuch")


def test_names_are_logged_and_payloads_are_not(
    deployment: pysqlbox.Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        deployment.schedules.set("nightly", "t", "secret", every=60, headers={"h": "secret"})
        deployment.schedules.remove("nightly")
    assert "schedule 'nightly' set" in caplog.text
    assert "schedule 'nightly' removed" in caplog.text
    assert "secret" not in caplog.text
