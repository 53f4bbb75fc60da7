"""What doctor() finds in the boxes of a deployment: each thing is brought about, and named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.joins import WAIT, Joins
from tests.contract.support import OWNER, Box, Caller, Row, columns, is_babelfish, server_now
from tests.support.database import Database

COLUMNS = ["check", "level", "subject", "detail", "advice"]
LEVELS = {"ok", "note", "warning", "error", "unknown"}
MINUTE, HOUR, DAY = 60, 3600, 86400
BOX_CHECKS = {"leases", "unclaimed", "groups", "paused", "dead_letters", "upkeep", "clock", "indexes"}
"""What is asked of every box in both dialects."""


def doctor(caller: Caller) -> list[Row]:
    """All rows."""
    rows = caller.call("doctor")
    assert all(list(row) == COLUMNS for row in rows)
    assert {row["level"] for row in rows} <= LEVELS
    return rows


def found(caller: Caller, check: str, subject: str = "") -> list[Row]:
    """What a check has found, of subjects that begin so."""
    return [
        row
        for row in doctor(caller)
        if row["check"] == check
        and row["level"] not in ("ok", "unknown")
        and row["subject"].startswith(subject)
    ]


def only(box: Box, check: str) -> Row:
    """The one thing that a check has found of a box; nothing of other boxes."""
    (row,) = found(box.caller, check, "box ")
    assert row["subject"].startswith(f"box {box.name}")
    return row


def mend(box: Box, row: Row) -> None:
    """Does what the advice says: its first statement."""
    statement = str(row["advice"]).partition(";")[0]
    box.db.sql(statement.replace("%", "%%") if box.db.dialect == "postgres" else statement)
    assert found(box.caller, str(row["check"]), "box ") == []


def test_contract_doctor_answers_a_row_for_every_check_of_every_box(db: Database) -> None:
    rows = doctor(db)
    unseen = {"indexes"} if is_babelfish(db) else set()
    for name in ("inbox", "mail", "orders", "outbox"):
        seen = {row["check"]: row["level"] for row in rows if row["subject"] == f"box {name}"}
        assert seen.keys() >= BOX_CHECKS
        assert {check for check, level in seen.items() if level != "ok"} == unseen
    everywhere = {"standby", "clock", "drift", "indexes", "roles", "joins", "sequences"}
    assert {row["check"] for row in rows} >= everywhere
    for row in rows:
        assert row["subject"]
        assert row["detail"]
        assert (row["advice"] is None) == (row["level"] == "ok"), row


def test_contract_doctor_has_its_shape(db: Database) -> None:
    assert columns(db, "doctor") == COLUMNS


def test_contract_doctor_names_a_lease_that_nobody_extends(every_box: Box) -> None:
    message = every_box.put()
    every_box.take(lease=30)
    every_box.db.advance(35)
    assert found(every_box.db, "leases") == [], "it ran out less than a minute ago"
    every_box.db.advance(65)
    row = only(every_box, "leases")
    assert row["level"] == "warning"
    assert f"message {message}" in row["detail"]
    assert str(OWNER) in str(row["detail"]).lower()
    every_box.db.advance(HOUR)
    row = only(every_box, "leases")
    assert row["level"] == "error"
    mend(every_box, row)


def test_contract_doctor_names_a_message_that_nobody_claims(every_box: Box) -> None:
    message = every_box.put(topic="lonely")
    assert found(every_box.db, "unclaimed") == []
    every_box.db.advance(6 * MINUTE)
    row = only(every_box, "unclaimed")
    assert (row["level"], row["subject"]) == ("warning", f"box {every_box.name}, topic lonely")
    assert f"message {message}" in row["detail"]
    assert "nobody has claimed" in row["detail"]
    every_box.db.advance(HOUR)
    assert only(every_box, "unclaimed")["level"] == "error"


def test_contract_doctor_sees_a_worker_that_does_not_take_a_topic(box: Box) -> None:
    box.put(topic="lonely")
    box.put(topic="served")
    box.db.advance(6 * MINUTE)
    box.ack(OWNER, box.take(topics=["served"]))
    row = only(box, "unclaimed")
    assert (row["level"], row["subject"]) == ("note", f"box {box.name}, topic lonely")
    assert "somebody works here" in row["detail"]


@pytest.mark.parametrize("how", ["priority", "group", "delayed"])
def test_contract_doctor_finds_unclaimed_messages_wherever_they_wait(box: Box, how: str) -> None:
    more: dict[str, dict[str, object]] = {
        "priority": {"priority": 7},
        "group": {"group_id": "g"},
        "delayed": {"delay_seconds": 30},
    }
    message = box.put(**more[how])
    box.db.advance(7 * MINUTE)
    assert f"message {message} " in only(box, "unclaimed")["detail"]


def test_contract_doctor_finds_no_claimable_message_behind_a_pause(box: Box) -> None:
    box.put(topic="stopped")
    box.call("pause", topic="stopped")
    box.db.advance(6 * MINUTE)
    assert found(box.db, "unclaimed") == []
    message = box.put(topic="going")
    box.db.advance(6 * MINUTE)
    assert f"message {message} " in only(box, "unclaimed")["detail"]
    box.call("pause", topic=None)
    assert found(box.db, "unclaimed") == []


def test_contract_doctor_names_a_paused_topic_and_a_paused_box(every_box: Box) -> None:
    every_box.call("pause", topic="it's")
    row = only(every_box, "paused")
    assert (row["level"], row["subject"]) == ("note", f"box {every_box.name}, topic it's")
    every_box.db.advance(2 * DAY)
    row = only(every_box, "paused")
    assert row["level"] == "warning"
    mend(every_box, row)
    every_box.call("pause", topic=None)
    row = only(every_box, "paused")
    assert row["subject"] == f"box {every_box.name}"
    assert "whole box" in row["detail"]
    mend(every_box, row)


def test_contract_doctor_names_the_head_that_holds_a_group_up(every_box: Box) -> None:
    head = every_box.put(group_id="g")
    every_box.put(group_id="g")
    every_box.take(batch=1)
    every_box.abandon(OWNER, [head], last_error="no", delay_seconds=DAY)
    every_box.db.advance(4 * MINUTE)
    assert found(every_box.db, "groups") == []
    every_box.db.advance(2 * MINUTE)
    row = only(every_box, "groups")
    assert (row["level"], row["subject"]) == ("warning", f"box {every_box.name}, group g")
    assert f"message {head} (attempt 1)" in row["detail"]
    mend(every_box, row)
    assert every_box.take(batch=1) == [head]


def test_contract_doctor_names_a_group_whose_head_is_of_a_paused_topic(box: Box) -> None:
    head = box.put(topic="stopped", group_id="g")
    box.put(topic="going", group_id="g")
    box.call("pause", topic="stopped")
    box.db.advance(6 * MINUTE)
    row = only(box, "groups")
    assert f"message {head} " in row["detail"]
    assert "paused topic stopped" in row["detail"]
    mend(box, row)


def test_contract_a_group_without_anything_behind_its_head_is_not_blocked(box: Box) -> None:
    box.put(group_id="g", delay_seconds=DAY)
    box.db.advance(HOUR)
    assert found(box.db, "groups") == []


def test_contract_doctor_names_dead_letters_but_not_the_cancelled(every_box: Box) -> None:
    every_box.cancel([every_box.put()])
    assert found(every_box.db, "dead_letters") == []
    messages = every_box.fill(3)
    every_box.fail(OWNER, every_box.take())
    row = only(every_box, "dead_letters")
    assert row["level"] == "warning"
    assert "3 messages" in row["detail"]
    assert any(f"{message}" in row["detail"] for message in messages)
    every_box.db.advance(2 * DAY)
    assert only(every_box, "dead_letters")["level"] == "note"
    every_box.affected("discard", ids=messages)
    assert found(every_box.db, "dead_letters") == []


def test_contract_doctor_sees_that_nobody_cleans_up(every_box: Box) -> None:
    every_box.fill(2)
    every_box.ack(OWNER, every_box.take())
    every_box.db.advance(25 * HOUR)
    assert found(every_box.db, "upkeep") == []
    every_box.db.advance(2 * HOUR)
    row = only(every_box, "upkeep")
    assert row["level"] == "warning"
    assert "oldest done message" in row["detail"]
    assert "nobody has ever cleaned up here" in row["detail"]
    mend(every_box, row)


def test_contract_doctor_tells_whoever_keeps_messages_from_nobody_cleaning_up(every_box: Box) -> None:
    every_box.fill(2)
    every_box.ack(OWNER, every_box.take())
    for _ in range(30):
        every_box.db.advance(DAY)
        assert every_box.affected("cleanup", retention_seconds=60 * DAY) == 0
        assert found(every_box.db, "upkeep") == []
    every_box.db.advance(25 * HOUR)
    row = only(every_box, "upkeep")
    assert row["level"] == "note", "they may mean to keep it for two months"
    assert "somebody has cleaned up here last" in row["detail"]
    every_box.db.advance(2 * DAY)
    row = only(every_box, "upkeep")
    assert row["level"] == "warning"
    assert "somebody has cleaned up here last 3 days" in row["detail"]
    mend(every_box, row)


def test_contract_doctor_names_schedules_that_nobody_fires(each_outbox: Box) -> None:
    soon = server_now(each_outbox.db) + timedelta(seconds=60)
    for name in ("a's", "b", "off"):
        each_outbox.call(
            "schedule_set",
            name=name,
            topic="t",
            payload="p",
            every_seconds=60,
            next_at=soon,
            enabled=name != "off",
        )
    assert found(each_outbox.caller, "schedules", "box ") == []
    each_outbox.db.advance(60 + 4 * MINUTE)
    assert found(each_outbox.caller, "schedules", "box ") == [], (
        "a worker looks every ten seconds, and may be restarted"
    )
    each_outbox.db.advance(2 * MINUTE)
    rows = found(each_outbox.caller, "schedules", f"box {each_outbox.name}, schedule ")
    assert [(row["subject"].partition("schedule ")[2], row["level"]) for row in rows] == [
        ("a's", "warning"),
        ("b", "warning"),
    ]
    assert "0:06:0" in rows[0]["detail"] or "00:06:0" in rows[0]["detail"]
    assert f"{each_outbox.name}_schedule_list" in rows[0]["advice"].replace('"', "").replace("]", "")
    each_outbox.db.advance(HOUR)
    assert {row["level"] for row in found(each_outbox.caller, "schedules", "box ")} == {"error"}
    for name in ("a's", "b"):
        each_outbox.call("schedule_remove", name=name)
    each_outbox.call("schedule_set", name="cron", topic="t", payload="p", cron="0 6 * * *")
    (row,) = found(each_outbox.caller, "schedules", "box ")
    assert (row["level"], row["subject"]) == ("note", f"box {each_outbox.name}, schedule cron")


def test_contract_doctor_sees_old_deduplication_keys(outbox: Box) -> None:
    outbox.put(dedup_key="k")
    outbox.ack(OWNER, outbox.take())
    assert outbox.affected("cleanup", retention_seconds=DAY) == 0
    outbox.db.advance(DAY)
    assert found(outbox.db, "upkeep") == []
    outbox.db.advance(4 * HOUR)
    rows = found(outbox.caller, "upkeep", "box ")
    assert [each["level"] for each in rows] == ["warning"] * 2, "of a done message, and of a key"
    (row,) = [each for each in rows if "deduplication key" in each["detail"]]
    mend(outbox, row)


def test_contract_doctor_sees_a_clock_that_was_set_back(every_box: Box) -> None:
    every_box.db.advance(HOUR)
    every_box.put()
    every_box.ack(OWNER, every_box.take())
    every_box.db.advance(-HOUR)
    row = only(every_box, "clock")
    assert row["level"] == "warning"
    assert "a message done" in row["detail"]


def test_contract_doctor_sees_the_clock_for_tests(db: Database) -> None:
    assert found(db, "clock") == []
    db.advance(10)
    (row,) = found(db, "clock")
    assert row["subject"] == "schema infra"
    assert "clock for tests" in row["detail"]
    db.sql(str(row["advice"]))
    assert found(db, "clock") == []


def test_contract_doctor_names_stuck_joins_and_why(joins: Joins) -> None:
    box = joins.box
    short, waiting, over, opened = (joins.start(2), joins.start(1), joins.start(1), joins.start(None))
    joins.attach(short, joins.put())
    joins.attach(waiting, joins.put("slow"))
    joins.attach(over, joins.put("quick"))
    box.ack(OWNER, box.take(topics=["quick"]))
    box.db.advance(59 * MINUTE)
    (row,) = found(box.db, "joins")
    assert (row["level"], row["subject"].lower()) == ("warning", f"join {over}"), "this one is over"
    assert "nobody has called join_wait" in row["detail"]
    box.db.advance(2 * MINUTE)
    details = {row["subject"].lower(): (row["level"], row["detail"]) for row in found(box.db, "joins")}
    assert details.keys() == {f"join {each}" for each in (short, waiting, over, opened)}
    assert details[f"join {short}"][0] == "note"
    assert "only 1 of its 2 steps are attached" in details[f"join {short}"][1]
    assert "0 of its 1 step is over" in details[f"join {waiting}"][1]
    assert "it is open" in details[f"join {opened}"][1]
    joins.wait(over, on_complete_topic="next")
    box.db.advance(6 * MINUTE)
    rows = {row["subject"].lower(): row for row in found(box.db, "joins")}
    assert WAIT in rows[f"join {over}"]["detail"]
    box.db.sql(str(rows[f"join {over}"]["advice"]))
    assert f"join {over}" not in {row["subject"].lower() for row in found(box.db, "joins")}
    box.db.advance(2 * DAY)
    assert {row["level"] for row in found(box.db, "joins")} == {"warning"}


def test_contract_doctor_names_a_routine_that_is_gone_or_was_changed(db: Database) -> None:
    assert found(db, "drift") == []
    with db.session() as session:
        if db.dialect == "postgres":
            session.sql("DROP FUNCTION {schema}.mail_reap(integer)")
            session.sql("ALTER FUNCTION {schema}.orders_ack(uuid, bigint[]) COST 7")
        else:
            session.sql("DROP PROCEDURE {schema}.mail_reap")
            session.sql("DROP PROCEDURE {schema}.orders_ack")
            session.sql("CREATE PROCEDURE {schema}.orders_ack AS SELECT 1 AS affected")
        rows = {row["subject"]: row for row in found(session, "drift")}
        assert rows.keys() == {"queue/reap@mail", "queue/ack@orders"}
        assert rows["queue/reap@mail"]["level"] == "error"
        assert "mail_reap" in rows["queue/reap@mail"]["detail"]
        assert rows["queue/ack@orders"]["level"] == "warning"
        assert "migrate" in rows["queue/ack@orders"]["advice"]


def test_contract_doctor_goes_on_where_a_part_of_it_is_missing(db: Database) -> None:
    """A box without its routine is a box that nothing is known of; the others are looked at."""
    with db.session() as session:
        kind = "FUNCTION" if db.dialect == "postgres" else "PROCEDURE"
        session.sql(f"DROP {kind} {{schema}}._mail_doctor{'()' if db.dialect == 'postgres' else ''}")
        rows = doctor(session)
        assert [row["level"] for row in rows if row["subject"] == "box mail"] == ["unknown"]
        others = [row for row in rows if row["subject"] == "box outbox" and row["check"] != "indexes"]
        assert {row["level"] for row in others} == {"ok"}


def test_contract_doctor_leaves_its_callers_transaction_usable(outbox: Box) -> None:
    with outbox.db.session() as session:
        mine = outbox.on(session)
        message = mine.put()
        doctor(session)
        assert mine.take() == [message]
        session.commit()
    assert outbox.get(message)["status"] == outbox.leased
