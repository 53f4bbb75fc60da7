"""How long a worker leaves a database alone that does not answer."""

from __future__ import annotations

__all__ = ["LONGEST_PAUSE", "doubled", "pause_after"]

#: The first pause, twice as long after each failure, but never above the second of these ...
FIRST_PAUSE, SHORT_PAUSE = 0.2, 1.0
#: ... or this part of the time that the database has been away, which has an end as well.
PART, LONGEST_PAUSE = 0.1, 5.0


def pause_after(failures: int, away: float) -> float:
    """Seconds to wait after so many failures in a row, the first of which was so many seconds ago.

    A server that recovers from a crash is back within seconds, and may go again soon. So nobody waits much
    longer than it was away: a pause that doubled without regard to that could take as long as the outage, and
    reach from one into the next.
    """
    return doubled(failures, min(max(SHORT_PAUSE, PART * away), LONGEST_PAUSE))


def doubled(failures: int, most: float) -> float:
    """Seconds that double with each failure up to the most."""
    return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 10), most)
