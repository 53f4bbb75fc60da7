"""Payloads become objects as their types say, or an error that holds nothing of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, Optional, TypedDict, TypeVar, Union
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pysqlbox.errors import InvalidArgument, PysqlboxError
from pysqlbox.serializer import JsonSerializer
from pysqlbox.typed import Undecodable, decode
from pysqlbox.typed.decoding import decoder

SECRET = "s3cr3t-pa55word"
CustomerId = NewType("CustomerId", str)
Item = TypeVar("Item")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(StrEnum):
    SMALL = "S"
    LARGE = "L"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Tenant(Enum):
    FIRST = UUID(int=1)


@dataclass(frozen=True)
class Line:
    sku: str
    quantity: int = 1
    price: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    id: UUID
    customer: CustomerId
    at: datetime
    lines: list[Line]
    note: str | None = None
    colour: Colour = Colour.RED
    size: Optional[Size] = None  # noqa: UP045  # the older spelling is to work too
    level: Level = Level.LOW
    kind: Literal["web", "shop", 7] | None = "web"
    tags: frozenset[str] = frozenset()
    by_day: dict[date, float] = field(default_factory=dict)
    by_number: Mapping[int, Sequence[Line]] = field(default_factory=dict)
    span: tuple[time, time] | None = None
    rest: Any = None
    paid: bool = False
    total: Annotated[Decimal, "euro"] = Decimal("0.1")
    computed: int = field(init=False, default=3)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Page(Generic[Item]):
    items: list[Item]
    next: str | None = None


class Address(TypedDict):
    street: str
    zip: NotRequired[str]


@dataclass
class Positive:
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"{SECRET} {self.amount}")


@dataclass
class Cat:
    kind: Literal["cat"]
    lives: int = 9


@dataclass
class Dog:
    kind: Literal["dog"]


FULL = Order(
    id=uuid4(),
    customer=CustomerId("c-1"),
    at=datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone(timedelta(hours=2))),
    lines=[Line("a"), Line("b", 2, Decimal("9.99999999999999999999999999"))],
    note='it\'s "quoted" \\ \n \u2028 🐘',
    colour=Colour.BLUE,
    size=Size.LARGE,
    level=Level.HIGH,
    kind=7,
    tags=frozenset({"x", "y"}),
    by_day={date(2024, 1, 1): 1.5},
    by_number={-1: [Line("c")]},
    span=(time(1, 2), time(3, 4, 5)),
    rest={"deep": [1, 2.5, None, True, {"e": "f"}]},
    paid=True,
    total=Decimal("1E+2"),
)


def _payload(value: object) -> str:
    """As the serializer writes it, whose keys of mappings must be text."""
    if isinstance(value, Order):
        plain = {name: getattr(value, name) for name in value.__dataclass_fields__}
        plain["by_day"] = {day.isoformat(): number for day, number in value.by_day.items()}
        value = plain
    return JsonSerializer().dumps(value)


def test_a_dataclass_comes_back_as_it_went() -> None:
    assert decode(_payload(FULL), Order) == FULL


def test_defaults_fill_what_a_payload_lacks() -> None:
    found = decode(
        f'{{"id": "{uuid4()}", "customer": "c", "at": "2024-01-01T00:00:00Z", "lines": []}}', Order
    )
    assert (found.at, found.lines, found.total) == (datetime(2024, 1, 1, tzinfo=UTC), [], Decimal("0.1"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 10**30),
        (bool, True),
        (float, 1.5),
        (dict, {"a": [1, 2.5]}),
        (list, [1, "a", None]),
        (list[UUID], [UUID(int=5)]),
        (set[int], {1, 2}),
        (tuple[int, ...], (1, 2, 3)),
        (tuple, (1, "a")),
        (dict[str, Line], {"a": Line("x")}),
        (dict[str, Decimal], {"a": Decimal("0.30")}),
        (dict[UUID, int], {str(UUID(int=1)): 1}),
        (Line | None, None),
        (Union[int, str], "a"),  # noqa: UP007  # the older spelling is to work too
        (Tree, Tree("a", [Tree("b", [Tree("c")])])),
        (Page[Line], Page([Line("a")])),
        (Address, {"street": "s"}),
        (list[Address], [{"street": "s", "zip": "z"}]),
        (Tenant, Tenant.FIRST),
        (Cat | Dog, Dog("dog")),
        (datetime | str, datetime(2024, 1, 1, tzinfo=UTC)),
        (CustomerId | None, None),
        (object, {"a": 1}),
        (Any, [1.5]),
    ],
)
def test_each_type_comes_back_as_it_went(kind: Any, value: object) -> None:
    found = decode(JsonSerializer().dumps(value), kind)
    if kind == dict[UUID, int]:
        value = {UUID(int=1): 1}
    assert found == value
    assert type(found) is type(value)


def test_text_is_taken_as_it_stands() -> None:
    """The serializer leaves text alone, so a handler of text gets what was enqueued."""
    for text in ("", "plain", '"quoted"', "null", "{not json"):
        assert decode(text, str) == text
        assert decode(text, CustomerId) == text


def test_a_union_takes_the_first_member_that_fits() -> None:
    assert decode('{"kind": "cat"}', Cat | Dog) == Cat("cat")
    assert decode('"2024-01-01"', str | date) == "2024-01-01"
    assert decode('"2024-01-01"', date | str) == date(2024, 1, 1)
    assert decode("true", int | bool) is True


def test_decimals_keep_every_digit_and_other_numbers_stay_floats() -> None:
    @dataclass
    class Mixed:
        exact: Decimal
        near: float
        any: Any

    found = decoder(Mixed, locals())(
        '{"exact": 0.1000000000000000000001, "near": 0.1, "any": [0.1, {"a": 0.2}]}'
    )
    assert found == Mixed(Decimal("0.1000000000000000000001"), 0.1, [0.1, {"a": 0.2}])
    assert type(found.any[0]) is float
    assert decode("5", Decimal) == 5
    assert decode('"5.10"', Decimal).as_tuple().digits == (5, 1, 0)


@pytest.mark.parametrize(
    ("payload", "kind", "reason"),
    [
        ("", Line, "it is not JSON"),
        ("{", Line, "it is not JSON"),
        (f'{{"sku": "{SECRET}"', Line, "it is not JSON"),
        ("[NaN]", list[float], "it is not JSON"),
        ("-Infinity", float, "it is not JSON"),
        ("9" * 5000, int, "it is not JSON"),
        ("[" * 200_000, list, "it is nested too deeply"),
        ('{"name": "a", "children": [' * 50_000, Tree, "it is nested too deeply"),
        ("1e400", float, "must be a number that fits a float"),
        ("9" * 4000, float, "must be a number that fits a float"),
        ('"NaN"', Decimal, "must be a decimal number"),
        ('"sNaN"', Decimal, "must be a decimal number"),
        ("[]", Line, "must be an object"),
        (f'"{SECRET}"', Line, "must be an object"),
        (f'{{"{SECRET}": 1}}', Line, "sku: is missing"),
        (f'{{"sku": ["{SECRET}"]}}', Line, "sku: must be text"),
        ('{"sku": "a", "quantity": true}', Line, "quantity: must be a whole number"),
        ('{"sku": "a", "quantity": 1.0}', Line, "quantity: must be a whole number"),
        (f'{{"sku": "a", "price": "{SECRET}"}}', Line, "price: must be a decimal number"),
        ('[{"sku": "a"}, {"sku": 1}]', list[Line], "[1].sku: must be text"),
        (f'{{"{SECRET}": "x"}}', dict[str, int], "[…]: must be a whole number"),
        (f'{{"{SECRET}": 1}}', dict[int, int], "[…]: must be a whole number"),
        ('{"1_0": 1}', dict[int, int], "[…]: must be a whole number"),
        ('{"%s": 1}' % ("9" * 5000), dict[int, int], "[…]: must be a whole number"),
        (f'"{SECRET}"', Colour, "must be one of Colour's values"),
        ("true", Level, "must be one of Level's values"),
        ("[]", Colour, "must be one of Colour's values"),
        ("true", Literal[1], "must be one of the literal values"),
        ("[]", Literal[1], "must be one of the literal values"),
        (f'"{SECRET}"', UUID, "must be a UUID"),
        ("5", UUID, "must be a UUID"),
        (f'"{SECRET}"', datetime, "must be an ISO 8601 time"),
        ("[1, 2, 3]", tuple[int, int], "must be a list of 2"),
        ('[1, "a"]', tuple[int, int], "[1]: must be a whole number"),
        ("{}", list[int], "must be a list"),
        ("[[1]]", set, "must hold what a set can hold"),
        ("0", bool, "must be true or false"),
        ('"1"', int, "must be a whole number"),
        ("1", float | None, None),
        ('"x"', float | None, "must be a number"),
        ('"x"', int | float, "must be one of int, float"),
        ("1", type(None), "must be null"),
        ('{"zip": "z"}', Address, "street: is missing"),
        ('{"amount": -1}', Positive, "Positive refused its fields (ValueError)"),
    ],
)
def test_a_misfit_says_where_and_why_but_nothing_of_the_payload(
    payload: str, kind: Any, reason: str | None
) -> None:
    if reason is None:
        decode(payload, kind)
        return
    with pytest.raises(Undecodable) as raised:
        decode(payload, kind)
    error = raised.value
    assert isinstance(error, PysqlboxError)
    assert error.reason.endswith(f": {reason}")
    assert SECRET not in str(error)
    assert error.__context__ is None
    assert error.__cause__ is None


@pytest.mark.parametrize(
    "kind", [bytes, complex, type, dict[float, int], dict[int | str, int], list[bytes], Page[bytes], range]
)
def test_a_type_that_json_cannot_fill_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"what JSON has|that JSON has"):
        decoder(kind)


def test_a_name_that_nobody_knows_is_refused_at_once() -> None:
    @dataclass
    class Broken:
        item: NoSuchThing  # type: ignore[name-defined]  # noqa: F821  # what the test is about

    with pytest.raises(InvalidArgument, match="NoSuchThing"):
        decoder(Broken)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_json)
def test_any_json_is_an_order_or_undecodable(value: object) -> None:
    """No other exception, whatever comes."""
    for kind in (Order, list[Line], Tree, Address, dict[int, Colour], int | Line, tuple[Decimal, UUID]):
        try:
            decode(json.dumps(value), kind)
        except Undecodable:
            continue


@given(
    st.builds(
        Order,
        id=st.uuids(),
        customer=st.text(),
        at=st.datetimes(timezones=st.just(UTC)),
        lines=st.lists(
            st.builds(Line, st.text(), st.integers(), st.decimals(allow_nan=False, allow_infinity=False)),
            max_size=3,
        ),
        note=st.none() | st.text(),
        colour=st.sampled_from(Colour),
        size=st.none() | st.sampled_from(Size),
        level=st.sampled_from(Level),
        kind=st.sampled_from(["web", "shop", 7, None]),
        tags=st.frozensets(st.text()),
        by_day=st.dictionaries(st.dates(), st.floats(allow_nan=False, allow_infinity=False), max_size=2),
        by_number=st.dictionaries(st.integers(), st.just([]), max_size=2),
        span=st.none() | st.tuples(st.times(), st.times()),
        rest=_json,
        paid=st.booleans(),
        total=st.decimals(allow_nan=False, allow_infinity=False),
    )
)
def test_every_order_comes_back_as_it_went(order: Order) -> None:
    assert decode(_payload(order), Order) == order
