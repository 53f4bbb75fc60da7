"""Schedules: setting, listing, removing them, what is due, and firing, which exactly one caller does."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest

from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, NotFound, PysqlboxError
from tests.contract.support import (
    DISTINCT,
    HOSTILE,
    KINDS,
    LONG,
    OWNER,
    TOO_LONG,
    Box,
    Row,
    by_position,
    columns,
    headers_of,
    is_babelfish,
    json_text,
    needs_lock_hints,
    refuses,
    server_now,
)
from tests.support.database import Database

COLUMNS = [
    "name", "topic", "cron", "every_seconds", "timezone", "next_at", "last_fired_at", "catch_up", "enabled",
    "group_id", "priority",
]  # fmt: skip
"""The columns of a schedule, in their order."""
PAST = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
FUTURE = datetime(2126, 3, 1, 2, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
OUTBOXES = [name for name, kind in KINDS.items() if kind == "outbox"]


def set_up(box: Box, name: object = "s", **more: object) -> Row:
    """Sets a schedule, every hour if nothing else is said."""
    if "cron" not in more and "every_seconds" not in more:
        more["every_seconds"] = 3600
    row = box.one("schedule_set", **{"name": name, "topic": "t", "payload": "p"} | more)
    assert list(row) == COLUMNS
    return row


def listed(box: Box) -> list[Row]:
    """Every schedule."""
    return box.call("schedule_list")


def due(box: Box, limit: int = 100) -> list[str]:
    """The names of what is due, in order."""
    return [str(row["name"]) for row in box.call("schedule_due", limit=limit)]


def fire(box: Box, name: object, due_at: object, next_at: object = FUTURE) -> Row:
    """Fires a planned time."""
    row = box.one("schedule_fire", name=name, due_at=due_at, next_at=next_at)
    assert list(row) == ["fired", "id", "message_id"]
    assert row["fired"] is (row["id"] is not None)
    return row


def skip(box: Box, name: object, due_at: object, next_at: object) -> int:
    """Passes a planned time over."""
    return box.affected("schedule_skip", name=name, due_at=due_at, next_at=next_at)


def get(box: Box, name: str = "s") -> Row:
    """One schedule."""
    (row,) = [row for row in listed(box) if row["name"] == name]
    return row


def test_contract_a_schedule_is_set_with_all_its_arguments(each_outbox: Box) -> None:
    given = {
        "topic": "report", "cron": "0 3 * * *", "every_seconds": None, "timezone": "Europe/Berlin",
        "next_at": PAST, "catch_up": 3, "enabled": True, "group_id": "g", "priority": 7,
    }  # fmt: skip
    row = set_up(each_outbox, "nightly", payload="{}", headers='{"a": 1}', **given)
    assert row == {"name": "nightly", **given, "last_fired_at": None}
    assert listed(each_outbox) == [row]
    assert each_outbox.call("schedule_due", limit=10) == [row]


def test_contract_a_schedules_defaults(outbox: Box) -> None:
    before = server_now(outbox.db)
    row = set_up(outbox, every_seconds=60)
    left_out = {"name", "topic", "every_seconds", "next_at", "last_fired_at"}
    assert {name: row[name] for name in COLUMNS if name not in left_out} == {
        "cron": None, "timezone": "UTC", "catch_up": 1, "enabled": True, "group_id": None, "priority": 0,
    }  # fmt: skip
    assert timedelta(0) <= row["next_at"] - before - timedelta(seconds=60) < timedelta(seconds=30)
    row = set_up(outbox, "c", cron="* * * * *")
    assert row["next_at"] is None, "left to whoever works it out"
    assert set_up(outbox, "n", timezone=None, catch_up=None, enabled=None, priority=None) | {"name": "s"} == {
        **get(outbox, "n"), "name": "s",
    }  # fmt: skip
    assert get(outbox, "n")["timezone"] == "UTC"


def test_contract_schedules_of_boxes_do_not_meet(db: Database) -> None:
    first, second = (Box(name, "outbox", db, db) for name in OUTBOXES)
    set_up(first, next_at=PAST, every_seconds=60)
    assert listed(second) == []
    set_up(second, next_at=PAST, every_seconds=60)
    assert fire(first, "s", PAST)["fired"]
    assert get(second)["next_at"] == PAST
    assert first.count() == 1
    assert second.count() == 0


def test_contract_setting_a_schedule_again_replaces_it_whole(outbox: Box) -> None:
    set_up(outbox, next_at=PAST, catch_up=5, group_id="g", priority=3, headers='{"a": 1}')
    fire(outbox, "s", PAST, PAST + HOUR)
    fired = get(outbox)["last_fired_at"]
    row = set_up(outbox, topic="other", payload="new")
    assert row == {
        "name": "s", "topic": "other", "cron": None, "every_seconds": 3600, "timezone": "UTC",
        "next_at": PAST + HOUR, "last_fired_at": fired, "catch_up": 1, "enabled": True, "group_id": None,
        "priority": 0,
    }  # fmt: skip
    message = outbox.get(fire(outbox, "s", PAST + HOUR)["id"])
    assert (message["topic"], message["payload"], message["group_id"]) == ("other", "new", None)
    assert list(_headers(message)) == ["scheduled_for"]


def test_contract_the_same_rule_keeps_its_next_time_and_another_one_begins_anew(outbox: Box) -> None:
    now = server_now(outbox.db)
    set_up(outbox, next_at=PAST)
    assert set_up(outbox)["next_at"] == PAST, "also one that is overdue: a restart must not lose it"
    assert set_up(outbox, next_at=FUTURE)["next_at"] == FUTURE, "unless one is given"
    assert set_up(outbox, timezone="Asia/Tokyo")["next_at"] < FUTURE
    assert now < set_up(outbox, every_seconds=7200)["next_at"] < FUTURE
    set_up(outbox, cron="0 3 * * *", next_at=PAST)
    assert set_up(outbox, cron="0 3 * * *")["next_at"] == PAST
    assert set_up(outbox, cron="0 3 * * *", timezone="Asia/Tokyo")["next_at"] is None
    set_up(outbox, cron="0 3 * * *", next_at=PAST)
    assert set_up(outbox, cron="1 3 * * *")["next_at"] is None
    assert set_up(outbox, cron="1 3 * * *")["next_at"] is None, "still to be worked out"
    assert now < set_up(outbox)["next_at"] < FUTURE


def test_contract_a_schedule_that_is_enabled_again_begins_anew(outbox: Box) -> None:
    """What was switched off was not missed."""
    set_up(outbox, next_at=PAST)
    assert set_up(outbox, enabled=False)["next_at"] == PAST
    assert due(outbox) == []
    assert not fire(outbox, "s", PAST)["fired"]
    assert skip(outbox, "s", PAST, FUTURE) == 0
    assert outbox.one("schedule_next")["next_at"] is None
    assert outbox.one("schedule_next")["is_due"] is False
    assert set_up(outbox, enabled=False)["next_at"] == PAST
    assert set_up(outbox)["next_at"] > server_now(outbox.db)
    set_up(outbox, cron="0 3 * * *", next_at=PAST, enabled=False)
    assert set_up(outbox, cron="0 3 * * *")["next_at"] is None
    set_up(outbox, cron="0 3 * * *", enabled=False)
    assert set_up(outbox, cron="0 3 * * *", next_at=FUTURE)["next_at"] == FUTURE


def test_contract_a_schedule_that_is_removed_is_gone(each_outbox: Box) -> None:
    set_up(each_outbox, next_at=PAST)
    made = fire(each_outbox, "s", PAST, PAST + HOUR)["id"]
    assert each_outbox.affected("schedule_remove", name="s") == 1
    assert listed(each_outbox) == []
    assert not fire(each_outbox, "s", PAST + HOUR)["fired"]
    assert skip(each_outbox, "s", PAST + HOUR, FUTURE) == 0
    assert each_outbox.status(made) == "Ready", "what it enqueued stays"
    for name in ("s", "S", "never", "", *TOO_LONG):
        with pytest.raises(NotFound, match="name"):
            each_outbox.call("schedule_remove", name=name)
    with refuses("name"):
        each_outbox.call("schedule_remove", name=None)
    assert set_up(each_outbox)["last_fired_at"] is None, "set again it is a new one"


def test_contract_schedules_are_listed_by_name(outbox: Box) -> None:
    for name in ("b", "a", "c", "B"):
        set_up(outbox, name, enabled=name != "c")
    assert [row["name"] for row in listed(outbox)] == ["B", "a", "b", "c"]


def test_contract_what_is_due_comes_by_its_time_and_what_has_none_first(outbox: Box) -> None:
    set_up(outbox, "late", next_at=PAST)
    set_up(outbox, "later", next_at=PAST + HOUR)
    set_up(outbox, "also", next_at=PAST + HOUR)
    set_up(outbox, "future", next_at=FUTURE)
    set_up(outbox, "off", next_at=PAST, enabled=False)
    set_up(outbox, "y", cron="* * * * *")
    set_up(outbox, "x", cron="nonsense")
    assert due(outbox) == ["x", "y", "late", "also", "later"]
    assert due(outbox, 3) == ["x", "y", "late"]
    assert due(outbox, 1) == ["x"]
    for limit in (0, -1, 10_001, None):
        with refuses("limit"):
            outbox.call("schedule_due", limit=limit)


def test_contract_a_schedule_is_due_by_the_servers_clock(each_outbox: Box) -> None:
    row = set_up(each_outbox, every_seconds=600)
    found = each_outbox.one("schedule_next")
    assert list(found) == ["now_at", "is_due", "next_at"]
    assert found["is_due"] is False
    assert found["next_at"] == row["next_at"]
    assert abs(found["now_at"] - server_now(each_outbox.db)) < timedelta(seconds=30)
    assert due(each_outbox) == []
    each_outbox.db.advance(700)
    set_up(each_outbox, "after", every_seconds=60)
    found = each_outbox.one("schedule_next")
    assert found["is_due"] is True
    assert found["next_at"] == get(each_outbox, "after")["next_at"]
    assert due(each_outbox) == ["s"]
    assert fire(each_outbox, "s", row["next_at"], row["next_at"] + HOUR)["fired"]
    assert each_outbox.one("schedule_next")["is_due"] is False


def test_contract_a_schedule_without_its_next_time_wants_attention(outbox: Box) -> None:
    assert outbox.one("schedule_next") | {"now_at": None} == {
        "now_at": None,
        "is_due": False,
        "next_at": None,
    }
    set_up(outbox, cron="0 3 * * *")
    assert outbox.one("schedule_next")["is_due"] is True
    assert skip(outbox, "s", None, FUTURE) == 1
    assert skip(outbox, "s", None, FUTURE + HOUR) == 0, "it has one now"
    assert outbox.one("schedule_next")["is_due"] is False
    assert outbox.one("schedule_next")["next_at"] == FUTURE


def test_contract_firing_enqueues_the_message_and_moves_the_schedule_on(each_outbox: Box) -> None:
    set_up(each_outbox, topic="report", payload="{}", next_at=PAST, priority=4, headers='{"a": {"b": 1}}')
    made = fire(each_outbox, "s", PAST, PAST + HOUR)
    assert made["fired"] is True
    (message,) = each_outbox.claim()
    assert (message["id"], message["message_id"]) == (made["id"], made["message_id"])
    assert (message["topic"], message["payload"], message["priority"]) == ("report", "{}", 4)
    assert headers_of(message) == {"a": {"b": 1}, "scheduled_for": "2026-03-01T02:30:00Z"}
    assert message["due_at"] is None
    row = get(each_outbox)
    assert row["next_at"] == PAST + HOUR
    assert abs(row["last_fired_at"] - server_now(each_outbox.db)) < timedelta(minutes=2)
    assert not fire(each_outbox, "s", PAST, PAST + HOUR)["fired"], "it stands elsewhere by now"
    assert get(each_outbox) == row
    assert each_outbox.claim() == []


def test_contract_firing_keeps_a_groups_order(outbox: Box) -> None:
    set_up(outbox, next_at=PAST, group_id="g")
    made = [fire(outbox, "s", PAST + n * HOUR, PAST + (n + 1) * HOUR)["id"] for n in range(3)]
    assert outbox.take() == made
    assert outbox.get(made[0])["group_id"] == "g"


def test_contract_the_planned_time_is_told_in_utc_to_the_microsecond(outbox: Box) -> None:
    berlin = datetime.fromisoformat("2026-07-01T00:30:00+02:00")
    planned = [berlin, berlin + timedelta(microseconds=120), berlin + timedelta(seconds=2)]
    told = ["2026-06-30T22:30:00Z", "2026-06-30T22:30:00.000120Z", "2026-06-30T22:30:02Z"]
    set_up(outbox, next_at=planned[0], headers='{"scheduled_for": "mine"}')
    for at, follows, text in zip(planned, [*planned[1:], FUTURE], told, strict=True):
        message = outbox.get(fire(outbox, "s", at, follows)["id"])
        assert headers_of(message) == {"scheduled_for": text}
        assert datetime.fromisoformat(text) == at


def test_contract_firing_without_a_next_time_goes_on_by_the_period(outbox: Box) -> None:
    set_up(outbox, every_seconds=90, next_at=PAST)
    assert fire(outbox, "s", PAST, None)["fired"]
    assert get(outbox)["next_at"] == PAST + timedelta(seconds=90), (
        "from the planned time, so it does not drift"
    )
    set_up(outbox, "c", cron="0 3 * * *", next_at=PAST)
    assert fire(outbox, "c", PAST, None)["fired"]
    assert get(outbox, "c")["next_at"] is None
    assert due(outbox)[0] == "c"
    assert outbox.call("schedule_fire", name="s", due_at=PAST)[0]["fired"] is False


def test_contract_a_skipped_time_leaves_no_message(each_outbox: Box) -> None:
    set_up(each_outbox, next_at=PAST)
    assert skip(each_outbox, "s", FUTURE, FUTURE + HOUR) == 0
    assert skip(each_outbox, "s", None, FUTURE) == 0
    assert skip(each_outbox, "s", PAST, PAST + HOUR) == 1
    assert skip(each_outbox, "s", PAST, PAST + HOUR) == 0
    row = get(each_outbox)
    assert (row["next_at"], row["last_fired_at"]) == (PAST + HOUR, None)
    assert each_outbox.count() == 0


def test_contract_a_first_time_is_for_the_rule_that_it_was_worked_out_from(outbox: Box) -> None:
    """Whoever has worked it out may come late: the schedule has another rule by then."""
    rule = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    outbox.one("schedule_set", name="s", topic="t", payload="p", **rule)
    for wrong in ({"cron": "0 4 * * *"}, {"timezone": "UTC"}, {"cron": "0 3 * * *", "timezone": "UTC"}):
        skipped = {"name": "s", "due_at": None, "next_at": FUTURE, **wrong}
        assert outbox.affected("schedule_skip", **skipped) == 0
    assert outbox.one("schedule_list")["next_at"] is None
    assert outbox.affected("schedule_skip", name="s", due_at=None, next_at=FUTURE, **rule) == 1
    assert outbox.one("schedule_list")["next_at"] == FUTURE
    outbox.one("schedule_set", name="e", topic="t", payload="p", every_seconds=60, next_at=FUTURE)
    late = FUTURE + timedelta(minutes=1)
    assert outbox.affected("schedule_skip", name="e", due_at=FUTURE, next_at=late, cron="0 3 * * *") == 0


def test_contract_firing_is_the_callers_transactions(each_outbox: Box) -> None:
    set_up(each_outbox, next_at=PAST)
    before = get(each_outbox)
    with each_outbox.db.session() as session:
        inside = each_outbox.on(session)
        assert fire(inside, "s", PAST, PAST + HOUR)["fired"]
        assert fire(inside, "s", PAST + HOUR, PAST + 2 * HOUR)["fired"]
        assert not fire(inside, "s", PAST)["fired"]
        session.rollback()
    assert get(each_outbox) == before
    assert each_outbox.count() == 0
    with each_outbox.db.session() as session:
        assert fire(each_outbox.on(session), "s", PAST, PAST + HOUR)["fired"]
        session.commit()
    assert each_outbox.count() == 1
    with each_outbox.db.session() as session:
        each_outbox.on(session).call("schedule_remove", name="s")
        set_up(each_outbox.on(session), "other")
        session.rollback()
    assert [row["name"] for row in listed(each_outbox)] == ["s"]


def test_contract_of_any_number_of_callers_exactly_one_fires(outbox: Box) -> None:
    rivals, times = (3, 2) if is_babelfish(outbox.db) else (8, 25)
    set_up(outbox, next_at=PAST)
    barrier = Barrier(rivals)

    def run(_: int) -> list[int]:
        fired = []
        with outbox.db.session() as session:
            mine = outbox.on(session)
            listed(mine)
            session.commit()
            barrier.wait(60)
            for number in range(times):
                due_at = PAST + number * HOUR
                if fire(mine, "s", due_at, due_at + HOUR)["fired"]:
                    fired.append(number)
                session.commit()
        return fired

    with ThreadPoolExecutor(rivals) as pool:
        found = sorted(number for each in pool.map(run, range(rivals)) for number in each)
    assert found == list(range(times))
    assert outbox.count() == times
    assert get(outbox)["next_at"] == PAST + times * HOUR


def test_contract_who_comes_second_decides_by_what_the_first_has_left(outbox: Box) -> None:
    set_up(outbox, next_at=PAST)
    for ends, expected in (("rollback", True), ("commit", False)):
        with outbox.db.session() as first, ThreadPoolExecutor(1) as pool:
            due_at = get(outbox)["next_at"]
            assert fire(outbox.on(first), "s", due_at, due_at + HOUR)["fired"]

            def second(due_at: datetime = due_at) -> bool:
                with outbox.db.session() as session:
                    fired = fire(outbox.on(session), "s", due_at, due_at + HOUR)["fired"]
                    session.commit()
                    return bool(fired)

            waiting = pool.submit(second)
            with contextlib.suppress(TimeoutError):
                waiting.result(0.5)
            assert not waiting.done()
            first.rollback() if ends == "rollback" else first.commit()
            assert waiting.result(60) is expected
    assert outbox.count() == 2


def test_contract_due_schedules_are_the_callers_until_its_transaction_ends(outbox: Box) -> None:
    needs_lock_hints(outbox.db)
    set_up(outbox, "a", next_at=PAST)
    set_up(outbox, "b", next_at=PAST)
    with outbox.db.session() as first, outbox.db.session() as second:
        assert due(outbox.on(first), 1) == ["a"]
        assert due(outbox.on(second)) == ["b"], "nobody waits"
        assert outbox.one("schedule_next")["is_due"] is True
        assert fire(outbox.on(first), "a", PAST)["fired"]
        first.commit()
        second.rollback()
    assert due(outbox) == ["b"]


@pytest.mark.dialect("postgres")
def test_contract_one_statement_fires_all_that_is_due(outbox: Box) -> None:
    """As docs/schedules.md has it for jobs without Python."""
    for number in range(3):
        set_up(outbox, f"s{number}", every_seconds=60, next_at=PAST)
    set_up(outbox, "c", cron="0 3 * * *", next_at=PAST)
    job = (
        "SELECT f.id FROM {schema}.outbox_schedule_due(100) AS d"
        " CROSS JOIN LATERAL {schema}.outbox_schedule_fire(d.name, d.next_at) AS f"
        " WHERE d.every_seconds IS NOT NULL"
    )
    for count in (3, 6):
        assert len(outbox.db.sql(job)) == 3
        assert outbox.count() == count
    assert {row["next_at"] for row in listed(outbox)} == {PAST, PAST + timedelta(seconds=120)}


def test_contract_a_schedule_that_somebody_changes_does_not_hold_up_the_others(outbox: Box) -> None:
    needs_lock_hints(outbox.db)
    for name in ("a", "b"):
        set_up(outbox, name, next_at=PAST)
    with outbox.db.session() as session:
        set_up(outbox.on(session), "a", topic="other")
        assert due(outbox) == ["b"]
        assert fire(outbox, "b", PAST)["fired"]
        session.rollback()
    assert due(outbox) == ["a"]


def test_contract_texts_of_a_schedule_come_back_as_they_went_in(outbox: Box) -> None:
    for text in HOSTILE:
        headers = {text: {"value": text}}
        row = set_up(
            outbox, text, topic=text, payload=text, cron=text, timezone=text, group_id=text, next_at=PAST,
            headers=json_text(headers),
        )  # fmt: skip
        assert [row[name] for name in ("name", "topic", "cron", "timezone", "group_id")] == [text] * 5
        message = outbox.get(fire(outbox, text, PAST)["id"])
        assert [message[name] for name in ("topic", "payload", "group_id")] == [text] * 3
        assert headers_of(message) == headers | {"scheduled_for": "2026-03-01T02:30:00Z"}
        assert outbox.affected("schedule_remove", name=text) == 1


def test_contract_names_of_schedules_differ_by_case_and_by_trailing_spaces(outbox: Box) -> None:
    for number, name in enumerate(DISTINCT):
        set_up(outbox, name, next_at=PAST + number * HOUR)
    assert due(outbox) == list(DISTINCT)
    assert fire(outbox, DISTINCT[2], PAST + 2 * HOUR)["fired"]
    assert not fire(outbox, DISTINCT[1], PAST)["fired"]
    assert set(due(outbox)) == set(DISTINCT) - {DISTINCT[2]}


def test_contract_texts_of_a_schedule_may_have_255_characters(outbox: Box) -> None:
    for text in (LONG, "y" * 254 + " ", "🐘" * 127):
        row = set_up(outbox, text, topic=text, cron=text, timezone=text, group_id=text, next_at=PAST)
        assert [row[name] for name in ("name", "topic", "cron", "timezone", "group_id")] == [text] * 5
        assert outbox.get(fire(outbox, text, PAST)["id"])["topic"] == text


WRONG: list[tuple[str, Row]] = [
    ("name", {"name": None}),
    ("name", {"name": ""}),
    *[("name", {"name": text}) for text in TOO_LONG],
    ("topic", {"topic": None}),
    ("topic", {"topic": ""}),
    *[("topic", {"topic": text}) for text in TOO_LONG],
    ("payload", {"payload": None}),
    ("cron", {"every_seconds": None}),
    ("cron", {"cron": "* * * * *"}),
    ("cron", {"cron": "", "every_seconds": None}),
    *[("cron", {"cron": text, "every_seconds": None}) for text in TOO_LONG],
    *[("every_seconds", {"every_seconds": number}) for number in (0, -1, 1_000_000_001)],
    ("timezone", {"timezone": ""}),
    *[("timezone", {"timezone": text}) for text in TOO_LONG],
    ("next_at", {"next_at": datetime(9000, 1, 1, tzinfo=UTC)}),
    *[("catch_up", {"catch_up": number}) for number in (-1, 10_001)],
    ("group_id", {"group_id": ""}),
    *[("group_id", {"group_id": text}) for text in TOO_LONG],
    *[("priority", {"priority": number}) for number in (32_768, -32_769)],
    ("headers", {"headers": "[]"}),
]


def test_contract_schedule_set_refuses_bad_arguments(outbox: Box) -> None:
    for argument, given in WRONG:
        with refuses(argument):
            set_up(outbox, **{"every_seconds": 60} | given)
    for text in ("{", "null", "x"):
        with pytest.raises(InvalidArgument):
            set_up(outbox, headers=text)
    assert listed(outbox) == []


def test_contract_firing_and_skipping_refuse_bad_arguments(outbox: Box) -> None:
    set_up(outbox, next_at=PAST)
    for step in (fire, skip):
        with refuses("name"):
            step(outbox, None, PAST, FUTURE)
        for follows in (PAST, PAST - HOUR, datetime(9000, 1, 1, tzinfo=UTC)):
            with refuses("next_at"):
                step(outbox, "s", PAST, follows)
        for name in ("", *TOO_LONG):
            assert step(outbox, name, PAST, FUTURE) in (0, {"fired": False, "id": None, "message_id": None})
    with refuses("due_at"):
        fire(outbox, "s", None)
    with refuses("next_at"):
        skip(outbox, "s", PAST, None)
    assert get(outbox)["next_at"] == PAST


@pytest.mark.dialect("postgres")
def test_contract_infinite_times_are_refused(outbox: Box) -> None:
    for text in ("infinity", "-infinity", "0044-03-15 12:00+00 BC"):
        with refuses("next_at"):
            set_up(outbox, next_at=text)
    set_up(outbox, next_at=PAST)
    with refuses("next_at"):
        fire(outbox, "s", PAST, "infinity")
    with refuses("next_at"):
        skip(outbox, "s", PAST, "-infinity")
    assert not fire(outbox, "s", "-infinity")["fired"]


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("zone", "local"), [("Asia/Tokyo", "0001-01-01 00:00"), ("America/New_York", "8999-12-31 20:00")]
)
def test_contract_the_years_of_a_schedule_are_utcs_whatever_the_sessions_zone(
    outbox: Box, zone: str, local: str
) -> None:
    """Else one schedule that Python cannot read would keep workers from all of them."""
    with outbox.db.session() as session:
        session.sql(f"SET TIME ZONE '{zone}'")
        session.commit()
        with refuses("next_at"):
            set_up(outbox.on(session), next_at=local)
        session.rollback()
    assert outbox.call("schedule_list") == []


@pytest.mark.dialect("postgres")
def test_contract_a_caller_with_an_older_snapshot_fires_or_has_to_begin_anew(outbox: Box) -> None:
    set_up(outbox, next_at=PAST)
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        due_at = get(outbox)["next_at"]
        with outbox.db.session() as session:
            session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
            assert due(outbox.on(session)) == ["s"]
            assert fire(outbox.on(session), "s", due_at, due_at + HOUR)["fired"]
            session.commit()
        with outbox.db.session() as session:
            session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
            listed(outbox.on(session))
            assert fire(outbox, "s", due_at + HOUR, due_at + 2 * HOUR)["fired"]
            with pytest.raises(DatabaseUnavailable):
                fire(outbox.on(session), "s", due_at + HOUR, due_at + 2 * HOUR)
    assert outbox.count() == 4


def test_contract_routines_of_schedules_have_their_shape(each_outbox: Box) -> None:
    db, name = each_outbox.db, each_outbox.name
    for step in ("list", "due"):
        assert columns(db, f"{name}_schedule_{step}") == COLUMNS
    assert columns(db, f"{name}_schedule_fire", "s", PAST, FUTURE) == ["fired", "id", "message_id"]
    assert columns(db, f"{name}_schedule_skip", "s", PAST, FUTURE) == ["affected"]
    (row,) = by_position(
        db, f"{name}_schedule_set", "s", "t", "p", None, 60, "UTC", PAST, 2, True, "g", 5, '{"a": 1}'
    )
    assert row == {
        "name": "s", "topic": "t", "cron": None, "every_seconds": 60, "timezone": "UTC", "next_at": PAST,
        "last_fired_at": None, "catch_up": 2, "enabled": True, "group_id": "g", "priority": 5,
    }  # fmt: skip
    assert by_position(db, f"{name}_schedule_skip", "s", PAST, PAST + HOUR) == [{"affected": 1}]
    assert [row["name"] for row in by_position(db, f"{name}_schedule_due", 5)] == ["s"]
    (fired,) = by_position(db, f"{name}_schedule_fire", "s", PAST + HOUR, FUTURE)
    assert fired["fired"] is True
    assert each_outbox.take(OWNER) == [fired["id"]]
    assert by_position(db, f"{name}_schedule_remove", "s") == [{"affected": 1}]


def test_contract_inboxes_have_no_schedules(db: Database) -> None:
    with pytest.raises(PysqlboxError):
        db.call("inbox_schedule_list")


def _headers(message: Row) -> dict[str, object]:
    found = headers_of(message)
    assert isinstance(found, dict)
    return found
