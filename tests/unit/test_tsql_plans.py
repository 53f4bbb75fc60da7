"""What the text of the queue's hot routines must say for SQL Server's plans, which no engine at hand shows.

A plan is made when a table may be empty, and kept. So the way to each row is written down, a seek; a
filtered index is only used by a query that repeats its filter; and sets are joined by their keys.
"""

from __future__ import annotations

import re

import pytest

from pysqlbox.deploy.render import render_units

FOLDERS = ("queue", "outbox", "inbox", "joins", "ledger")
UNITS = [unit for unit in render_units("mssql") if unit.folder in FOLDERS]
TEXTS = {unit.object_name: re.sub(r"--[^\n]*", "", unit.text) for unit in UNITS if "PROCEDURE" in unit.text}
QUEUE = {unit.object_name for unit in UNITS if unit.folder == "queue"}
COLD = {
    "cleanup",
    "cleanup_dead",
    "configure",
    "dead_causes",
    "dead_letter_causes",
    "dead_letters",
    "discard",
    "explain",
    "get",
    "groups",
}
COLD |= {"list", "pause", "reap", "replay", "resume", "stats", "workers"}
LISTS = {"join_list", "ledger_list"}
METRICS = {"_inbox_metrics", "_outbox_metrics"}
"""Routines of operators and viewers; _reap, which claims call, is another one than reap."""

DOCTORS = {name for name in TEXTS if name.endswith("_doctor")}
"""Each has a test of its own: they read much, rarely, and by plans made anew."""

HOT = sorted(
    name
    for name in TEXTS.keys() - DOCTORS - METRICS - LISTS
    if name.partition("box_")[2] not in COLD or name.startswith("_")
)
CLEANUPS = sorted(name for name in TEXTS if name.endswith(("_cleanup", "_cleanup_dead")))
TABLES = "ready|scheduled|lease|group_member|message|done|dead|collapse|dedup|seen"
OTHERS = "join|join_member|join_tally|ledger"
LARGE = re.compile(rf"\[infra\]\.\[(?:(?:outbox|inbox)_(?:{TABLES})|{OTHERS})\]")
ROWS = re.compile(
    rf"(?:FROM|JOIN)\s+\[infra\]\.\[(?:(?:outbox|inbox)_)?(?P<table>{TABLES}|{OTHERS})\] AS (?P<alias>\w+)"
    r"(?:\s+WITH \((?P<hints>(?:[^()]|\([^()]*(?:\([^()]*\))?[^()]*\))*)\))?"
)
FILTERED = {"ready": ("id", "group_key"), "lease": ("group_key",), "join": ("finished_at",)}
FILTERED["ledger"] = ("processed_at", "lease_until")
"""Columns by which only a filtered index leads to a row."""

ASIDE = re.compile(r"\s*SELECT (?:1|TOP \(0\))\s")
"""The question of an IF, which takes no OPTION (nor does a text that is SET), and an empty answer."""

SET = re.compile(r"\b(?:FROM|JOIN) @\w+ AS ")
"""A set of the call's own, with which a large table is joined."""

STATEMENT = re.compile(r"^\s*(?:INSERT|UPDATE|DELETE|SELECT|WITH)\b[^;]*;", re.MULTILINE)


DECLARED = re.compile(r"DECLARE (?P<name>@\w+) TABLE \((?P<columns>(?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\);")


def _statements(name: str) -> list[str]:
    body = TEXTS[name].partition("\nBEGIN\n")[2]
    return [match[0] for match in STATEMENT.finditer(body)]


def test_there_is_something_to_look_at() -> None:
    assert {"outbox_claim", "inbox_ack", "_inbox_claim_groups", "_outbox_promote"} <= set(HOT)
    assert sum(len(ROWS.findall(TEXTS[name])) for name in HOT) > 100


@pytest.mark.parametrize("name", sorted({*HOT, *CLEANUPS}))
def test_the_way_to_each_row_is_written_down(name: str) -> None:
    for match in ROWS.finditer(TEXTS[name].partition("SELECT TOP (0)")[0]):
        hints = match["hints"] or ""
        assert "FORCESEEK" in hints, match[0]


@pytest.mark.parametrize("name", sorted(DOCTORS))
def test_a_doctor_scans_no_table(name: str) -> None:
    """Members of one group, or a lease of it, are few, and sought by their keys."""
    for statement in _statements(name):
        for match in ROWS.finditer(statement):
            by_group = f"{match['alias']}.group_key = " in statement
            assert "FORCESEEK" in (match["hints"] or "") or by_group, match[0]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_filtered_index_is_asked_for_with_its_filter(name: str) -> None:
    for statement in _statements(name):
        for match in ROWS.finditer(statement):
            alias = match["alias"]
            for column in FILTERED.get(match["table"], ()):
                sought = re.search(rf"\b(?:ON|WHERE|AND) {alias}\.{column} = ", statement)
                by_key = re.search(rf"\b{alias}\.(?:ticket|id) (?:=|IN) ", statement) and column != "id"
                by_ticket = re.search(rf"\b{alias}\.ticket = ", statement)
                if sought and not by_key and not by_ticket:
                    assert f"{alias}.{column} IS NOT NULL" in statement, statement


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_keeps_its_plan(name: str) -> None:
    """Small tables that are emptied and filled all the time would have it made again and again.

    Outside of the queue's own routines that goes for sets; a row by its key is a plan without a choice.
    """
    for statement in _statements(name):
        if name not in QUEUE and not SET.search(statement):
            continue
        if statement.count("(") != statement.count(")"):  # within an expression
            continue
        if LARGE.search(statement) and not ASIDE.match(statement) and "FOR JSON" not in statement:
            assert "KEEPFIXED PLAN" in statement, statement


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_no_ranks_are_joined(name: str) -> None:
    """Neither side would have a key: each row of one would be compared with each of the other."""
    for statement in _statements(name):
        assert statement.count("ROW_NUMBER()") <= 1, statement


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_sets_are_joined_by_their_keys(name: str) -> None:
    """A set of ids has a primary key, and no statement joins one with itself."""
    keyed = {found["name"]: "PRIMARY KEY" in found["columns"] for found in DECLARED.finditer(TEXTS[name])}
    for statement in _statements(name):
        assert all(keyed.get(table, True) for table in re.findall(r"JOIN (@\w+)", statement)), statement
        for table in keyed:
            if keyed[table]:
                continue
            assert len(re.findall(rf"(?:FROM|JOIN) {table}\b", statement)) <= 1, statement


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_members_of_a_group_are_read_by_their_versions(name: str) -> None:
    """READPAST would take one that is merely locked for one that is not committed."""
    for statement in _statements(name):
        if re.match(r"\s*DELETE", statement):
            continue
        for match in ROWS.finditer(statement):
            if match["table"] == "group_member":
                assert "READPAST" not in (match["hints"] or ""), statement
                assert "UNCOMMITTED" not in (match["hints"] or ""), statement


def test_a_claim_has_an_end() -> None:
    """It looks at no ticket that is put out while it runs, and makes so many turns at most."""
    for name in ("outbox_claim", "inbox_claim"):
        text = TEXTS[name]
        loop = text[text.index("WHILE @is_open = 1") :]
        scans = [match[0] for match in STATEMENT.finditer(loop) if "_ready] AS" in match[0]]
        scans = [scan for scan in scans if "TOP (" in scan and "FROM [infra]" in scan]
        assert len(scans) == 5
        assert all("ticket < @last" in scan for scan in scans)
        assert "@turn >= 50" in loop
        assert loop.count("WHILE") == 1
        assert "EXEC [infra].[_outbox_promote]" not in loop


def test_a_promotion_looks_twice_at_most() -> None:
    text = TEXTS["_outbox_promote"]
    assert text.count("WHILE") == 1
    assert "_promote" not in text.partition("\nBEGIN\n")[2]
    assert "WHEN @is_first = 1 AND" in text
