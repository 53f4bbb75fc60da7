"""What must hold in the text of every T-SQL procedure, for no engine at hand shows it when it does not."""

from __future__ import annotations

import re

import pytest

from pysqlbox.deploy.render import render_units

CHECKERS = {
    "_reject",
    "_ledger_check",
    "_check_owner",
    "_check_settling",
    "_check_cleanup",
    "_inbox_check_key",
}
"""Routines that only check: they are called while XACT_ABORT is off, and leave it so."""
EXPLAINING = {"_outbox_explain", "_inbox_explain"}
FOLDERS = ("queue", "outbox", "inbox", "joins", "ledger", "admin")

TEXTS = {
    unit.object_name: unit.text
    for unit in render_units("mssql")
    if unit.folder in (*FOLDERS, "internal") and "CREATE OR ALTER PROCEDURE" in unit.text
}
DOCTORS = {name for name in TEXTS if name.endswith("_doctor") or name.startswith("_doctor_")}
"""Parts of doctor, which has begun for them; they only read: what they catch leaves nothing half done."""
WORKING = sorted(TEXTS.keys() - CHECKERS - EXPLAINING - DOCTORS)
_BEGIN = re.compile(
    r"\bAS\nBEGIN\n    SET NOCOUNT, XACT_ABORT ON;\n    SET ROWCOUNT 0;\n"
    r"    IF SERVERPROPERTY\('Babelfish'\) IS NULL\n        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"
)
_OFF = re.compile(
    r"IF @callers_depth > 0\s+SET XACT_ABORT OFF;\s*(?P<next>THROW|EXEC \[infra\]\.\[(?P<routine>\w+)\])"
)
_WRITE = re.compile(r"^\s*(?:UPDATE|DELETE|MERGE)\b[^;]*;", re.MULTILINE)


@pytest.mark.parametrize("name", WORKING)
def test_a_procedure_begins_with_its_own_settings(name: str) -> None:
    """Nothing runs under the caller's isolation level, and a timeout ends the transaction as a whole."""
    assert _BEGIN.search(TEXTS[name])


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_xact_abort_is_off_only_to_turn_a_call_away(name: str) -> None:
    text = TEXTS[name]
    if name == "doctor":
        assert text.count("XACT_ABORT OFF") == 1
        assert "IF @callers_depth > 0\n        SET XACT_ABORT OFF;" in text
        return
    allowed = [match for match in _OFF.finditer(text) if match["routine"] in {None, *CHECKERS, *EXPLAINING}]
    assert len(allowed) == text.count("XACT_ABORT OFF")
    for match in allowed:
        if match["routine"] in CHECKERS - {"_reject"}:
            rest = text[match.end() :]
            assert re.match(r"[^;]*;\s*SET XACT_ABORT ON;", rest), "a check that passes turns it on again"


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - DOCTORS - {"doctor"}))
def test_no_procedure_tries_and_catches(name: str) -> None:
    """A caught violation would need XACT_ABORT off while the insert waits."""
    assert "BEGIN TRY" not in TEXTS[name]


@pytest.mark.parametrize("name", sorted({*DOCTORS, "doctor"}))
def test_what_tries_and_catches_writes_nothing(name: str) -> None:
    """But its findings; and what has doomed the transaction is raised again."""
    text = TEXTS[name]
    assert not _WRITE.search(text)
    kept = {target for target in re.findall(r"INSERT INTO (\S+)", text) if not target.startswith("@")}
    assert kept <= {"#pysqlbox_doctor"}
    assert text.count("BEGIN CATCH") == text.count("IF XACT_STATE() = -1\n") > 0


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_clock_is_asked_in_line(name: str) -> None:
    """A scalar function that reads the clock is never inlined."""
    assert "[_now]()" not in TEXTS[name]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_rows_are_locked_by_their_clustered_key(name: str) -> None:
    """By another key first, they would be locked in the opposite order to a delete's."""
    for statement in _WRITE.findall(TEXTS[name]):
        if re.search(r"\[(?:ledger|inbox_message)\]", statement):
            assert not re.search(r"\b(?:ledger_key|source_key|message_id_key) =", statement)


def test_reading_by_a_key_that_decides_does_not_read_versions() -> None:
    """Behind a key's lock the last committed row counts, and one that is just being deleted is waited for."""
    for name in ("_outbox_enqueue", "_inbox_enqueue", "inbox_already_processed", "ledger_try_begin"):
        behind = TEXTS[name].partition("sp_getapplock")[2]
        assert "WITH (ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)" in behind


def test_batches_lock_their_keys_in_the_order_of_their_numbers() -> None:
    for name in ("outbox_enqueue_many", "inbox_enqueue_many"):
        assert re.search(r"MIN\(k\.number\) FROM @key AS k WHERE k\.number > @key_number", TEXTS[name])


@pytest.mark.parametrize(
    "name", ["outbox_enqueue_many", "inbox_enqueue_many", "outbox_settle", "inbox_settle"]
)
def test_each_record_is_read_once(name: str) -> None:
    """A record's texts are found by one pass over it, but on Babelfish, which cuts long ones short."""
    there, _, elsewhere = TEXTS[name].partition("-- Each record is read once")[2].partition("\n    ELSE\n")
    assert there.count("OPENJSON(@") == 1
    assert there.count("OPENJSON(CASE WHEN j.type = 5") == 1
    assert ".[key] = N'" not in there
    assert ".[key] = N'" in elsewhere
