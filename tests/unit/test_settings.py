"""What a worker may be told, and what it makes of delays that handlers and policies wish for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import pysqlbox
from pysqlbox import InvalidArgument
from pysqlbox.worker.settings import LONGEST, SHORTEST, Settings, WorkerOptions, checked_names, whole
from tests.unit.standins import Parts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("boxes", "outbox"), ("boxes", []), ("topics", "t"), ("poll_seconds", None), ("poll_seconds", 0),
        ("max_attempts", -1), ("max_attempts", 2**31), ("max_attempts", True), ("retention", -1),
        ("retention", timedelta(seconds=-1)), ("retention", float("nan")), ("retention", float("inf")),
        ("retention", "7 days"), ("retention", None), ("retention", True),
        ("name", ""), ("name", "x" * 256), ("name", 5),
        ("batch_size", 0), ("batch_size", 10_001), ("batch_size", True), ("lease_seconds", 0),
        ("lease_seconds", 86_401), ("lease_seconds", 1.5), ("lease_seconds", None), ("async_slots", 0),
        ("async_slots", 100_001), ("handler_timeout", 0), ("reap_seconds", -1), ("cleanup_seconds", 0),
        ("report_seconds", True), ("schedule_seconds", "1"), ("stall_seconds", 0), ("idle", "doze"),
        ("unknown_topics", "keep"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_its_name(name: str, value: Any) -> None:
    options: Any = {name: value}
    with pytest.raises(InvalidArgument, match=name):
        Settings.checked(options)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("boxes", ["b", "a", "b"], ("b", "a")),  # each once: two of one would claim for each other
        ("topics", ["t"], ("t",)),
        ("topics", None, None),
        ("max_attempts", 0, 0),
        ("max_attempts", None, None),
        ("retention", 0, 0),
        ("retention", timedelta(days=1), 86_400),
        ("name", "x" * 255, "x" * 255),
        ("poll_seconds", timedelta(milliseconds=20), 0.02),
        ("lease_seconds", timedelta(minutes=1), 60),
        ("report_seconds", None, None),
    ],
)
def test_what_makes_sense_is_kept_in_the_units_that_threads_need(
    name: str, value: Any, expected: Any
) -> None:
    options: WorkerOptions = {name: value}  # type: ignore[misc]  # one of them
    assert getattr(Settings.checked(options), name) == expected


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 11])
def test_a_whole_number_is_one_and_within_its_bounds(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="n: must be a whole number from 1 to 10"):
        whole("n", value, 1, 10)
    assert (whole("n", 1, 1, 10), whole("n", 10, 1, 10)) == (1, 10)


def test_an_option_that_there_is_none_of_is_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match=r"argument 'thread' \(is it 'threads'\?\)"):
        checked_names({"thread": 3})
    with pytest.raises(TypeError, match=r"argument 'zzz'$"):
        checked_names({"zzz": 3})
    checked_names({"threads": 3})
    with (
        pysqlbox.connect("postgresql://127.0.0.1:1/none") as nowhere,
        pytest.raises(TypeError, match="unexpected keyword argument"),
    ):
        nowhere.worker(thread=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(5, 5.0), (timedelta(seconds=2), 2.0), (1e-9, SHORTEST), (1e300, LONGEST), (None, None)],
)
def test_a_delay_is_one_that_every_database_takes(asked: Any, expected: float | None) -> None:
    assert Settings().delay(Parts().box.log, 0, asked) == expected


@pytest.mark.parametrize("asked", [-1, float("nan"), "soon"])
def test_a_wish_that_makes_no_sense_is_told_and_none(caplog: pytest.LogCaptureFixture, asked: Any) -> None:
    assert Settings().delay(Parts().box.log, 0, asked) is None
    assert "the delay before attempt 1 is left to the box" in caplog.text


def test_the_handlers_wish_comes_before_the_policys(caplog: pytest.LogCaptureFixture) -> None:
    settings, log = Settings(backoff=lambda attempt: 10.0 * attempt), Parts().box.log
    assert settings.retry_delay(log, 2, None) == 20.0
    assert settings.retry_delay(log, 2, 3) == 3.0
    assert Settings().retry_delay(log, 2, None) is None
    assert caplog.text == ""


def test_a_policy_that_fails_leaves_it_to_the_box(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_attempt: int) -> float:
        raise ZeroDivisionError("never seen before")

    assert Settings(backoff=fail).retry_delay(Parts().box.log, 2, None) is None
    assert "never seen before" in caplog.text
