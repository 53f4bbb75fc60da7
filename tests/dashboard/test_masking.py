"""What stays hidden of payloads."""

from __future__ import annotations

import json

import pytest

from pysqlbox.dashboard.masking import MASK, Masking
from pysqlbox.dashboard.samples import Samples
from pysqlbox.dashboard.shared import Shared
from pysqlbox.messages import TopicStats


@pytest.mark.parametrize(
    "payload",
    [
        '{"a": 1, "b": [1, 2.50, {"c": null}], "d": {}, "e": [], "f": "ü\\n", "g": true}',
        "[]", "{}", '"text"', "12", "null", "-0.10e400", "1" * 5000,
    ],
)  # fmt: skip
def test_json_is_shown_as_it_is(payload: str) -> None:
    shown = Masking().payload(payload)
    assert shown.is_json
    assert "".join(shown.text.split()) == "".join(payload.replace("\\u00fc", "ü").split())


def test_fields_are_hidden_at_any_depth_whatever_their_case() -> None:
    payload = {
        "User": {"PassWord": {"a": [1]}, "name": "ada"},
        "items": [{"api_key": None}],
        "pin": 1,
        "opinion": 2,
    }
    shown = Masking().payload(json.dumps(payload))
    found = json.loads(shown.text)
    assert found["User"] == {"PassWord": MASK, "name": "ada"}
    assert found["items"] == [{"api_key": MASK}]
    assert (found["pin"], found["opinion"]) == (MASK, 2)
    assert shown.masked == 3


@pytest.mark.parametrize(
    "payload",
    [
        '{"password": "hush"',
        "[" * 3000 + '{"password": "hush"}' + "]" * 3000,
        "[" * 150 + '{"password": "hush"}' + "]" * 150,
        '{"password": "hush", "password": "hush"}',
        '{"n": ' + "9" * 6000 + ', "password": "hush"}',
        '{"password": hush}',
        'prefix {"a":1,"password" : "hu\\"sh hush',
    ],
)
def test_no_way_of_writing_it_gets_past(payload: str) -> None:
    shown = Masking().payload(payload)
    assert "hush" not in shown.text
    assert shown.masked


def test_long_ones_are_cut() -> None:
    shown = Masking().payload("x" * 300_000)
    assert (len(shown.text), shown.cut) == (200_000, 100_000)


def test_fields_of_ones_own() -> None:
    shown = Masking(["*email*"]).payload('{"Email": "a@b", "password": "p"}')
    assert json.loads(shown.text) == {"Email": MASK, "password": "p"}


def test_what_is_asked_is_shared_and_what_is_dear_lasts_longer() -> None:
    now = [100.0]
    shared = Shared(size=2, clock=lambda: now[0])
    asked: list[str] = []

    def ask(name: str, seconds: float = 0.0) -> str:
        asked.append(name)
        now[0] += seconds
        return name

    for _ in range(3):
        assert shared.get("a", 2, lambda: ask("a")) == "a"
    now[0] += 2
    shared.get("a", 2, lambda: ask("a"))
    assert asked == ["a", "a"]
    shared.get("dear", 2, lambda: ask("dear", 0.5))
    now[0] += 9.9
    shared.get("dear", 2, lambda: ask("dear", 0.5))
    assert asked.count("dear") == 1
    now[0] += 0.2
    shared.get("dear", 2, lambda: ask("dear", 60))
    assert asked.count("dear") == 2
    now[0] += 31  # half a minute at the most
    shared.get("dear", 2, lambda: ask("dear"))
    assert asked.count("dear") == 3
    shared.get("b", 2, lambda: ask("b"))
    shared.get("c", 2, lambda: ask("c"))
    shared.get("dear", 2, lambda: ask("dear"))
    assert asked.count("dear") == 4
    now[0] += 61  # and what nobody asks for is not kept
    shared.get("b", 2, lambda: ask("b"))
    assert list(shared._entries) == ["b"]
    with pytest.raises(ZeroDivisionError):
        shared.get("fails", 2, lambda: 1 // 0)
    assert shared.get("fails", 2, lambda: 7) == 7


def test_rates_leave_out_what_was_cleaned_up() -> None:
    samples = Samples()
    assert samples.done_line() == []

    def add(at: float, done: int, ready: int = 0) -> None:
        samples.add(at, TopicStats(None, ready, 0, 0, done, 0, None))

    add(0, 0)
    assert samples.done_rate() is None
    add(2, 20, 10)
    add(4, 5, 10)  # a cleanup
    add(6, 25, 10)
    assert samples.done_rate() == 10
    assert samples.arrival_rate() == pytest.approx(50 / 4)
    line = samples.done_line()
    assert len(line) == 60
    assert line[-1] == 10
    assert line[:-1] == [None] * 59
    add(2000, 25)
    assert samples.done_line()[:-1] == [None] * 59
