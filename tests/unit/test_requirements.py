"""docs/requirements.md is complete: every number has a row, and rows and tests name each other."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAST = {"OBX": 120, "IBX": 130}
"""How many requirements each document numbers."""

_ROW = re.compile(r"^\| ((?:OBX|IBX)-\d{3}) \| .+ \| .+ \| (.*) \|$", re.MULTILINE)
_NUMBER = re.compile(r"(obx|ibx)_(\d{3})")


def _page() -> str:
    return (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")


def _tests() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        names.update(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    return names


def test_every_requirement_has_one_row() -> None:
    expected = {f"{document}-{number:03}" for document, last in LAST.items() for number in range(1, last + 1)}
    rows = Counter(number for number, _ in _ROW.findall(_page()))
    assert set(rows) == expected
    assert set(rows.values()) == {1}


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", _page()))
    assert named
    assert named - _tests() == set()


def test_every_test_that_carries_a_number_is_in_the_row_of_that_number() -> None:
    rows = {number: set(re.findall(r"`(test_\w+)`", cell)) for number, cell in _ROW.findall(_page())}
    missing = [
        (f"{document.upper()}-{number}", name)
        for name in sorted(_tests())
        for document, number in _NUMBER.findall(name)
        if name not in rows[f"{document.upper()}-{number}"]
    ]
    assert missing == []
