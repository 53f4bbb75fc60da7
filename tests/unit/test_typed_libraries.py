"""pydantic models and msgspec Structs, where they are installed."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from pysqlbox.errors import InvalidArgument
from pysqlbox.serializer import JsonSerializer
from pysqlbox.typed import Undecodable, decode
from pysqlbox.typed.decoding import decoder

SECRET = "s3cr3t-pa55word"


class Colour(Enum):
    RED = "red"


def _refused(payload: str, kind: Any) -> str:
    """Why a payload is refused."""
    with pytest.raises(Undecodable) as raised:
        decode(payload, kind)
    assert SECRET not in str(raised.value)
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None
    return raised.value.reason


def test_neither_library_is_imported_by_pysqlbox() -> None:
    program = (
        "import sys, dataclasses, pysqlbox.typed as t\n"
        "@dataclasses.dataclass\nclass A:\n    x: int\n"
        "assert t.decode('{\"x\": 1}', A) == A(1)\n"
        "assert not {'pydantic', 'msgspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_pydantic_models_come_back_as_they_went() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Line(pydantic.BaseModel):  # type: ignore[name-defined,misc]  # imported only if it is there
        sku: str
        price: Decimal

    class Order(pydantic.BaseModel):  # type: ignore[name-defined,misc]  # imported only if it is there
        id: UUID
        at: datetime
        lines: list[Line]
        colour: Colour | None = None

    Order.model_rebuild(_types_namespace={"Line": Line, **globals()})
    order = Order(
        id=UUID(int=1),
        at=datetime(2024, 1, 1, tzinfo=UTC),
        lines=[Line(sku="a", price=Decimal("0.10000000000000000000000001"))],
        colour=Colour.RED,
    )
    payload = JsonSerializer().dumps(order)
    assert decode(payload, Order) == order
    assert decode(f"[{payload}]", list[Order]) == [order]
    assert decode("null", Order | None) is None

    @dataclass
    class Batch:
        orders: list[Order]

    batch = Batch([order])
    assert decoder(Batch, locals())(JsonSerializer().dumps(batch)) == batch


def test_pydantics_complaints_hold_nothing_of_the_payload() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Payment(pydantic.BaseModel):  # type: ignore[name-defined,misc]  # imported only if it is there
        model_config = pydantic.ConfigDict(extra="forbid")
        amount: int = pydantic.Field(alias="theAmount")
        by_name: dict[str, int] = pydantic.Field(default_factory=dict)
        colour: Colour = Colour.RED

        @pydantic.field_validator("amount")  # type: ignore[untyped-decorator]  # see above
        @classmethod
        def _positive(cls, value: int) -> int:
            if value < 0:
                raise ValueError(f"{SECRET} is no amount")
            return value

    assert _refused(f'{{"theAmount": "{SECRET}"}}', Payment).endswith("theAmount: int_parsing")
    assert _refused(f'{{"theAmount": 1, "{SECRET}": 1}}', Payment).endswith(": …: extra_forbidden")
    assert _refused(f'{{"theAmount": 1, "by_name": {{"{SECRET}": "x"}}}}', Payment).endswith(
        "by_name.…: int_parsing"
    )
    assert _refused(f'{{"theAmount": 1, "colour": "{SECRET}"}}', Payment).endswith("colour: enum")
    assert _refused('{"theAmount": -1}', Payment).endswith("theAmount: value_error")
    assert _refused(f'{{"theAmount": "{SECRET}', Payment).endswith("json_invalid")
    assert "…" not in _refused('[{"theAmount": "x"}]', list[Payment])


def test_msgspec_structs_come_back_as_they_went() -> None:
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    line: Any = msgspec.defstruct("Line", [("sku", str), ("price", Decimal)])
    order: Any = msgspec.defstruct(
        "Order", [("id", UUID), ("at", datetime), ("lines", list[line]), ("raw", bytes)], rename="camel"
    )
    value = order(UUID(int=1), datetime(2024, 1, 1, tzinfo=UTC), [line("a", Decimal("0.10"))], b"\x00\xff")
    payload = JsonSerializer().dumps(value)
    assert decode(payload, order) == value
    assert decode(f"[{payload}]", list[order]) == [value]


def test_msgspecs_complaints_hold_nothing_of_the_payload() -> None:
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    line: Any = msgspec.defstruct(
        "Line",
        [
            ("sku", str),
            ("colour", Colour, Colour.RED),
            ("id", UUID, UUID(int=1)),
            ("by_name", dict[str, int], {}),
        ],
        forbid_unknown_fields=True,
    )
    assert _refused("[]", line).endswith("Expected `object`, got `array`")
    assert _refused("{}", line).endswith("Object missing required field `sku`")
    assert _refused('{"sku": 1}', line).endswith("Expected `str`, got `int` - at `$.sku`")
    assert _refused(f'{{"sku": "a", "by_name": {{"{SECRET}": "x"}}}}', line).endswith("at `$.by_name[...]`")
    assert _refused(f'{{"sku": "a", "colour": "{SECRET}"}}', line).endswith("a value is not allowed")
    assert _refused(f'{{"sku": "a", "{SECRET}": 1}}', line).endswith("a value is not allowed")
    assert _refused(f'{{"sku": "a", "id": "{SECRET}"}}', line).endswith("Invalid UUID - at `$.id`")
    assert _refused(f'{{"sku": "{SECRET}', line).endswith("it is not JSON")
    assert _refused("[" * 100_000, line)


def test_mixing_the_two_is_refused_at_once() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    model: Any = pydantic.create_model("Model", x=(int, ...))
    struct: Any = msgspec.defstruct("Struct", [("x", int)])
    with pytest.raises(InvalidArgument, match="must not mix"):
        decoder(dict[str, model | struct])


def test_what_a_library_does_not_take_is_refused_at_once() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
    model: Any = pydantic.create_model("Model", x=(int, ...))
    struct: Any = msgspec.defstruct("Struct", [("x", int)])
    with pytest.raises(InvalidArgument, match="one that pydantic takes"):
        decoder(dict[str, model | types.FunctionType])
    with pytest.raises(InvalidArgument, match="one that msgspec takes"):
        decoder(dict[str, list[struct] | set[struct]])
