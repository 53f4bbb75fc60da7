"""The pauses between tries."""

from __future__ import annotations

import pytest

from pysqlbox import Retries


def test_pauses_double_up_to_the_cap_and_are_never_the_same() -> None:
    """Random, so that those who failed together do not come back together."""
    retries = Retries(base_seconds=0.1, cap_seconds=1.0)
    for tried, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (30, 1.0)):
        pauses = [retries.pause(tried) for _ in range(200)]
        assert longest / 2 <= min(pauses)
        assert max(pauses) <= longest
        assert len(set(pauses)) > 100
        assert sum(pauses) / len(pauses) == pytest.approx(0.75 * longest, rel=0.1)
