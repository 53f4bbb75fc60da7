"""Boxes, their names, and quoting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pysqlbox.errors import InvalidArgument
from pysqlbox.names import (
    DEFAULT_BOXES,
    NamedBox,
    check_schema_name,
    merge_boxes,
    parse_box,
    quote_identifier,
    quote_literal,
)

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1)


def test_parse_box() -> None:
    """A box is written name:kind."""
    assert parse_box("orders:inbox") == NamedBox("orders", "inbox")
    assert parse_box("outbox:outbox") in DEFAULT_BOXES


@pytest.mark.parametrize(
    "text",
    [
        *("orders", "orders:", "orders:box", ":inbox"),
        *("Orders:inbox", "1a:inbox", "a-b:inbox", "a b:inbox", "é:inbox", f"{'a' * 31}:inbox"),
        *("join:outbox", "ledger:inbox", "schema:inbox", "outbox:inbox", "inbox:outbox"),
    ],
)
def test_parse_box_refuses(text: str) -> None:
    """Bad names, bad kinds, reserved names."""
    with pytest.raises(InvalidArgument, match="box"):
        parse_box(text)


def test_merge_boxes() -> None:
    """The default boxes come first, the others by name, each once."""
    merged = merge_boxes([NamedBox("b", "inbox")], [NamedBox("a", "outbox"), NamedBox("b", "inbox")])
    assert merged == (*DEFAULT_BOXES, NamedBox("a", "outbox"), NamedBox("b", "inbox"))
    with pytest.raises(InvalidArgument, match="is an inbox already"):
        merge_boxes([NamedBox("b", "inbox")], [NamedBox("b", "outbox")])


@given(TEXT)
def test_quoted_identifier_reads_back(name: str) -> None:
    """Whatever the name, what is between the quotes is that name and nothing else."""
    postgres = quote_identifier("postgres", name)
    assert (postgres[0], postgres[-1]) == ('"', '"')
    assert postgres[1:-1].replace('""', "\x00").count('"') == 0
    assert postgres[1:-1].replace('""', '"') == name
    mssql = quote_identifier("mssql", name)
    assert mssql[1:-1].replace("]]", "\x00").count("]") == 0
    assert mssql[1:-1].replace("]]", "]") == name


@given(TEXT)
def test_quoted_literal_reads_back(text: str) -> None:
    """Whatever the text, the literal holds that text and nothing else."""
    mssql = quote_literal("mssql", text)
    assert mssql[:2] == "N'"
    assert mssql[2:-1].replace("''", "'") == text
    postgres = quote_literal("postgres", text)
    body = postgres.partition("'")[2][:-1].replace("''", "'")
    assert body == (text.replace("\\", "\\\\") if postgres.startswith(" E") else text)
    assert postgres.startswith(" E") == ("\\" in text)


@pytest.mark.parametrize("name", ["", "a\x00b"])
def test_refused_identifiers(name: str) -> None:
    """Empty names and NUL cannot be quoted."""
    with pytest.raises(InvalidArgument):
        quote_identifier("postgres", name)
    with pytest.raises(InvalidArgument):
        check_schema_name("mssql", name)


def test_schema_name_limits() -> None:
    """PostgreSQL counts bytes, SQL Server characters; $$ would end a routine's text."""
    assert check_schema_name("postgres", "x" * 63)
    assert check_schema_name("mssql", "ö" * 128)
    for dialect, name in (("postgres", "ö" * 32), ("mssql", "x" * 129), ("postgres", "a$$b")):
        with pytest.raises(InvalidArgument, match="schema"):
            check_schema_name(dialect, name)  # type: ignore[arg-type]  # both are dialects
