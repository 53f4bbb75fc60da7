"""Keys of the ledger: different messages never share one, and each fits."""

from __future__ import annotations

import inspect
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pysqlbox.errors import InvalidArgument
from pysqlbox.idempotent import KEY_LENGTH, Idempotent, ledger_key


def _length(key: str) -> int:
    return len(key.encode("utf-16-le")) // 2


def test_a_plain_key_reads_as_the_document_has_it() -> None:
    assert ledger_key("rabbit", "billing", "order.created", "17") == "rabbit:billing:order.created:17"
    assert ledger_key("b", "g", "a", 17) == "b:g:a:17"
    assert ledger_key("b", "g", "a", UUID(int=1)) == "b:g:a:00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a:b", "c", "d", "e"), ("a", "b:c", "d", "e")),
        (("a%003A", "c", "d", "e"), ("a:", "c", "d", "e")),
        (("a", "c", "d", "e%#"), ("a", "c", "d", "e#")),
        (("a", "c", "d", "e "), ("a", "c", "d", "e")),
        (("a", "c", "d", "E"), ("a", "c", "d", "e")),
        (("a", "c", "d", "\x00"), ("a", "c", "d", "%0000")),
        (("a", "c", "d", "\ud800"), ("a", "c", "d", "\ud801")),
        (("a", "c", "d", "x" * 600), ("a", "c", "d", "x" * 601)),
        (("a", "c", "d" * 600, "e"), ("a", "c", "d" * 599, "de")),
        (("a", "c", "d", "🐘" * 300), ("a", "c", "d", "🐘" * 301)),
    ],
)
def test_hostile_pieces_do_not_collide(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    keys = {ledger_key(*one), ledger_key(*other)}
    assert len(keys) == 2
    for key in keys:
        assert _length(key) <= KEY_LENGTH
        key.encode()
        assert "\x00" not in key


def test_a_long_key_keeps_its_beginning() -> None:
    key = ledger_key("bus", "group", "alias", "x" * 1000)
    assert key.startswith("bus:group:alias:xxx")
    assert _length(key) == KEY_LENGTH
    assert ledger_key("b", "g", "a", "x" * (KEY_LENGTH - 6)) == "b:g:a:" + "x" * (KEY_LENGTH - 6)


_piece = st.text(st.characters() | st.sampled_from(":%#\x00"), min_size=1, max_size=400)


@given(st.tuples(_piece, _piece, _piece, _piece), st.tuples(_piece, _piece, _piece, _piece))
def test_keys_are_equal_only_if_their_pieces_are(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (ledger_key(*one) == ledger_key(*other)) == (one == other)
    assert 1 <= _length(ledger_key(*one)) <= KEY_LENGTH


def test_what_is_left_out_is_as_the_contract_has_it() -> None:
    once = Idempotent(object(), bus="b", group="g")  # type: ignore[call-overload]  # asks nothing yet
    assert (once.release_on_error, once.lease_seconds, once.retention, once.enabled) == (
        False, None, timedelta(days=7), True,
    )  # fmt: skip
    assert list(inspect.signature(Idempotent.__init__).parameters)[1:8] == [
        "store", "bus", "group", "release_on_error", "lease", "retention", "enabled",
    ]  # fmt: skip


@pytest.mark.parametrize("piece", ["", None, True, 1.5, b"x"])
def test_a_piece_that_is_no_name_is_refused(piece: object) -> None:
    with pytest.raises(InvalidArgument, match="message_id"):
        ledger_key("b", "g", "a", piece)
    with pytest.raises(InvalidArgument, match="bus"):
        ledger_key(piece, "g", "a", "x")  # type: ignore[arg-type]  # what the test is about


def test_rules_that_make_no_sense_are_refused() -> None:

    for options in (
        {"lease": 0},
        {"lease": 0.5},
        {"lease": 86401},
        {"lease": True},
        {"lease": float("nan")},
        {"lease": timedelta(seconds=-1)},
        {"on_busy": "wait"},
        {"retention": timedelta(0)},
        {"group": ""},
    ):
        with pytest.raises(InvalidArgument):
            Idempotent(object(), **{"bus": "b", "group": "g", **options})  # type: ignore[call-overload]  # see above
