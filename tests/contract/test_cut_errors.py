"""Errors are kept up to 16,384 characters, a mark at the end of those that were cut among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contract.support import OWNER, Box, is_babelfish

LIMIT = 16384
MARK = " ... [cut]"

WAYS: dict[str, Callable[[Box, int, str], object]] = {
    "abandon": lambda box, message, error: box.abandon(OWNER, [message], last_error=error),
    "fail": lambda box, message, error: box.fail(OWNER, [message], error),
    "settle as abandon": lambda box, message, error: box.settle(
        OWNER, [{"id": message, "result": "abandon", "error": error}]
    ),
    "settle as fail": lambda box, message, error: box.settle(
        OWNER, [{"ids": [message], "result": "fail", "error": error}]
    ),
}
"""Every call that records an error."""
each_way = pytest.mark.parametrize("way", WAYS)


def kept(box: Box, way: str, error: str) -> str:
    """What a message's last_error is after a call was given this one."""
    message = box.put()
    assert box.take() == [message]
    WAYS[way](box, message, error)
    return str(box.get(message)["last_error"])


@each_way
def test_contract_an_error_is_kept_up_to_16384_characters(box: Box, way: str) -> None:
    whole = "x" * LIMIT
    assert kept(box, way, whole) == whole
    assert kept(box, way, whole + "y") == whole[: LIMIT - len(MARK)] + MARK
    assert kept(box, way, whole * 20) == whole[: LIMIT - len(MARK)] + MARK


@each_way
def test_contract_blanks_at_the_end_of_an_error_count(box: Box, way: str) -> None:
    whole = "x" * (LIMIT - 9) + " " * 9
    assert kept(box, way, whole) == whole
    assert kept(box, way, whole + " ") == whole[: LIMIT - len(MARK)] + MARK
    assert kept(box, way, " " * (LIMIT + 1)) == " " * (LIMIT - len(MARK)) + MARK


@each_way
def test_contract_no_character_is_cut_in_half(box: Box, way: str) -> None:
    for before in ("", "a"):
        error = before + "🐘" * LIMIT + "."
        if box.db.dialect == "mssql" and not is_babelfish(box.db):
            # A character is a UTF-16 unit there, and an elephant two.
            left = before + "🐘" * ((LIMIT - len(MARK) - len(before)) // 2)
        else:
            left = error[: LIMIT - len(MARK)]
        assert kept(box, way, error) == left + MARK


def test_contract_a_cut_error_goes_on_as_it_is(box: Box) -> None:
    message = box.put()
    box.take()
    box.abandon(OWNER, [message], last_error="x" * 20000, delay_seconds=1)
    once = box.get(message)["last_error"]
    box.db.advance(5)
    assert [row["last_error"] for row in box.claim()] == [once]
    box.fail(OWNER, [message], once)
    assert box.get(message)["last_error"] == once
    assert [row["last_error"] for row in box.call("dead_letters", limit=10)] == [once]
