"""Which planned times a schedule makes up for, and when it fires next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pysqlbox.errors import InvalidArgument
from pysqlbox.rules import LATE, due_times, rule_of

START = datetime(2026, 11, 19, 3, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("rule", [("0 * * * *", None, "UTC"), (None, 3600, "UTC")], ids=["cron", "every"])
@pytest.mark.parametrize("catch_up", [0, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("missed", [0, 1, 2, 4, 50])
@pytest.mark.parametrize("late", [timedelta(0), SECOND, LATE, LATE + SECOND, HOUR - SECOND])
def test_the_last_of_the_missed_times_fire(
    rule: tuple[str | None, int | None, str], catch_up: int, missed: int, late: timedelta
) -> None:
    now = START + missed * HOUR + late
    come = [START + number * HOUR for number in range(missed + 1)]
    due = due_times(rule_of(*rule), START, now, catch_up)
    if catch_up:
        assert due.times == come[-catch_up:]
    else:
        assert due.times == (come[-1:] if late <= LATE else [])
    assert due.next_at == come[-1] + HOUR
    assert [at for at, _ in due.steps()] == due.times
    assert [follows for _, follows in due.steps()] == [*due.times[1:], due.next_at][: len(due.times)]


def test_a_period_keeps_its_phase() -> None:
    rule = rule_of(None, 7, "UTC")
    planned = START + timedelta(microseconds=123)
    for late in range(50):
        due = due_times(rule, planned, planned + late * SECOND, 1)
        assert due.next_at is not None
        assert (due.next_at - planned) % timedelta(seconds=7) == timedelta(0)
        assert timedelta(0) < due.next_at - (planned + late * SECOND) <= timedelta(seconds=7)


def test_long_ago_costs_no_more() -> None:
    """A year of seconds, and a hundred years of minutes."""
    due = due_times(rule_of(None, 1, "UTC"), START - timedelta(days=365), START, 3)
    assert due.times == [START - 2 * SECOND, START - SECOND, START]
    due = due_times(rule_of("* * * * *", None, "Europe/Berlin"), START - timedelta(days=36500), START, 2)
    assert due.times == [START - timedelta(minutes=1), START]
    due = due_times(rule_of("0 0 1 1 *", None, "UTC"), datetime(1, 1, 1, tzinfo=UTC), START, 2)
    assert due.times == [datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]


def test_a_first_time_of_ones_own_counts_among_them() -> None:
    rule = rule_of("0 * * * *", None, "UTC")
    planned = START - timedelta(minutes=7)
    assert due_times(rule, planned, planned, 1).times == [planned]
    assert due_times(rule, planned, planned, 1).next_at == START
    assert due_times(rule, planned, START, 1).times == [START]
    assert due_times(rule, planned, START + HOUR, 9).times == [planned, START, START + HOUR]


def test_across_a_change_of_clocks_each_planned_time_is_made_up_for_once() -> None:
    rule = rule_of("30 2 * * *", None, "Europe/Berlin")
    spring, autumn = datetime(2026, 3, 28, 1, 30, tzinfo=UTC), datetime(2026, 10, 24, 0, 30, tzinfo=UTC)
    assert due_times(rule, spring, spring + timedelta(days=2), 9).times == [
        spring, datetime(2026, 3, 29, 1, 0, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
    ]  # fmt: skip
    assert due_times(rule, autumn, autumn + timedelta(days=2, hours=1), 9).times == [
        autumn, datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "argument"),
    [
        ((None, None, "UTC"), "cron"), (("* * * * *", 60, "UTC"), "cron"), (("x", None, "UTC"), "cron"),
        (("* * * * *", None, "Nowhere"), "timezone"), ((None, 60, "Nowhere"), "timezone"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_read_is_refused(
    rule: tuple[str | None, int | None, str], argument: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{argument}: "):
        rule_of(*rule)
