"""The pauses between tries."""

from __future__ import annotations

from typing import Any

import pytest

from pysqlbox import InvalidArgument, Retries


def test_pauses_double_up_to_the_cap_and_are_never_the_same() -> None:
    """Random, so that those who failed together do not come back together."""
    retries = Retries(base_seconds=0.1, cap_seconds=1.0)
    for tried, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (30, 1.0)):
        pauses = [retries.pause(tried) for _ in range(200)]
        assert longest / 2 <= min(pauses)
        assert max(pauses) <= longest
        assert len(set(pauses)) > 100
        assert sum(pauses) / len(pauses) == pytest.approx(0.75 * longest, rel=0.1)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"base_seconds": -0.1}, "base_seconds"),
        ({"base_seconds": 3.0}, "base_seconds"),
        ({"cap_seconds": 0.01}, "base_seconds"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        Retries(**wrong)
    assert Retries(attempts=1, base_seconds=0.0, cap_seconds=0.0).pause(1) == 0
