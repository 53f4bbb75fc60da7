"""What every run of workers has to answer for: each message handled exactly once."""

from __future__ import annotations

from collections.abc import Sequence


def problem(ids: Sequence[str], finished: int) -> str | None:
    """Each message once, and as many as the database says are finished."""
    again = len(ids) - len(set(ids))
    if again:
        return f"{again} handled more than once"
    if len(ids) != finished:
        return f"{len(ids)} handled, {finished} expected"
    return None
