"""Payloads of values that are not text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pysqlbox import InvalidArgument, JsonSerializer
from pysqlbox.arguments import payload_text

dumps = JsonSerializer().dumps


class Colour(Enum):
    RED = "red"


class Size(StrEnum):
    LARGE = "l"


@dataclass
class Line:
    sku: str
    price: Decimal


@dataclass
class Order:
    id: UUID
    at: datetime
    colour: Colour
    lines: list[Line]


def test_nested_values() -> None:
    order = Order(UUID(int=1), datetime(2026, 1, 2, tzinfo=UTC), Colour.RED, [Line("a", Decimal("1.10"))])
    assert json.loads(
        dumps({"order": order, "tags": {"x"}, "day": date(2026, 1, 2), "size": Size.LARGE})
    ) == {
        "order": {
            "id": "00000000-0000-0000-0000-000000000001",
            "at": "2026-01-02T00:00:00+00:00",
            "colour": "red",
            "lines": [{"sku": "a", "price": "1.10"}],
        },
        "tags": ["x"],
        "day": "2026-01-02",
        "size": "l",
    }
    assert dumps([1, "ü", None, True]) == '[1,"ü",null,true]'


def test_models_of_libraries() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    model: Any = pydantic.create_model("Model", at=(datetime, ...))
    struct: Any = msgspec.defstruct("Struct", [("id", UUID)])
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert json.loads(dumps({"m": model(at=at), "s": [struct(id=UUID(int=2))]})) == {
        "m": {"at": "2026-01-02T00:00:00Z"},
        "s": [{"id": "00000000-0000-0000-0000-000000000002"}],
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_plain_json_comes_back(value: object) -> None:
    assert json.loads(dumps(value)) == value


def test_what_cannot_be_written_is_named_by_its_type_only() -> None:
    class Secret:
        def __repr__(self) -> str:
            return "hunter2"

    circle: list[object] = []
    circle.append(circle)
    for value in (Secret(), {"a": Secret()}, float("nan"), {("hunter2",): 1}, circle, {"a": b"hunter2"}):
        with pytest.raises(InvalidArgument, match=r"^payload: ") as caught:
            dumps(value)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_text_is_not_serialized() -> None:
    serializer = JsonSerializer()
    assert payload_text("payload", '"x"', serializer) == '"x"'
    text = payload_text("payload", Size.LARGE, serializer)
    assert (text, type(text)) == ("l", str)
    assert payload_text("payload", None, serializer) is None
    for value in (b"x", bytearray(b"x"), memoryview(b"x")):
        with pytest.raises(InvalidArgument, match="payload: must not be bytes"):
            payload_text("payload", value, serializer)


def test_a_serializer_of_ones_own() -> None:
    class Pipes:
        def dumps(self, value: Any) -> str:
            return "|".join(value)

    assert payload_text("payload", ["a", "b"], Pipes()) == "a|b"
