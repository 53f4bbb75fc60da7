"""One message, two messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pysqlbox.wording import counted

ROOT = Path(__file__).parents[2]
#: A number that is put in right before a word for several things.
_UNCOUNTED = re.compile(
    r"(?:\{[^{}\"']*\}|%[ds]) (?:[a-z]+ )?"
    r"(?:messages|rows|keys|leases|attempts|seconds|minutes|threads|workers|steps|stores|entries|results)\b"
)
#: Where there is always more than one, or a share of several.
_MANY = re.compile(
    r" of \{|%s of %s|len\(wanted\)|\{name\}|:\.1f\}|\{(LOCK_TIMEOUT|LEASE|PATIENCE|TOLD)_SECONDS"
)


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("message",), "0 messages"),
        (1, ("message",), "1 message"),
        (2, ("message",), "2 messages"),
        (1.0, ("second",), "1 second"),
        (0.25, ("second",), "0.25 seconds"),
        (30.0, ("second",), "30 seconds"),
        (1, ("entry", "entries"), "1 entry"),
        (1234567, ("entry", "entries"), "1234567 entries"),
    ],
)
def test_a_number_with_its_word(number: float, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


def test_texts_do_not_count_by_hand() -> None:
    """Else somebody reads of 1 messages."""
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "pysqlbox").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if _UNCOUNTED.search(line) and not _MANY.search(line)
    ]
    assert wrong == []
