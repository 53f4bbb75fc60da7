"""When a schedule fires: its rule, and which of the times that have come are made up for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Protocol

from pysqlbox.cron import Cron, parse_cron, zone_of
from pysqlbox.errors import InvalidArgument

__all__ = ["Due", "Every", "Rule", "due_times", "rule_of"]

#: A time that nobody got to for so long was missed; until then it is merely a little late.
LATE = timedelta(seconds=60)


class Rule(Protocol):
    """Which moments come after a planned one. Moments are in UTC."""

    def after(self, planned: datetime, moment: datetime) -> datetime | None:
        """The first one behind a moment, which is not before ``planned``; None if there is none."""

    def last(self, planned: datetime, moment: datetime, count: int) -> list[datetime]:
        """The last ones until a moment, at most so many, in order; ``planned`` is the first of all."""


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many seconds from the planned time on: it never drifts."""

    seconds: int

    def after(self, planned: datetime, moment: datetime) -> datetime | None:
        """The first one behind a moment."""
        step = timedelta(seconds=self.seconds)
        return planned + ((moment - planned) // step + 1) * step

    def last(self, planned: datetime, moment: datetime, count: int) -> list[datetime]:
        """The last ones until a moment."""
        step = timedelta(seconds=self.seconds)
        latest = (moment - planned) // step
        return [planned + number * step for number in range(max(0, latest - count + 1), latest + 1)]


@dataclass(frozen=True, slots=True)
class ByClock:
    """The moments of a cron text in a zone; the planned one need not be one of them."""

    cron: Cron
    zone: tzinfo

    def after(self, planned: datetime, moment: datetime) -> datetime | None:
        """The first one behind a moment."""
        return self.cron.after(max(planned, moment), self.zone)

    def last(self, planned: datetime, moment: datetime, count: int) -> list[datetime]:
        """The last ones until a moment."""
        earlier = (found for found in self.cron.back(moment, self.zone) if found <= moment)
        behind = itertools.takewhile(lambda found: found > planned, earlier)
        found = [*itertools.islice(behind, count)]
        return ([planned] if len(found) < count else []) + found[::-1]


def rule_of(cron: str | None, every_seconds: int | None, timezone: str) -> Rule:
    """The rule of a schedule; InvalidArgument if it cannot be read here."""
    zone = zone_of(timezone)
    if (cron is None) == (every_seconds is None):
        raise InvalidArgument("cron: must be given, or every, and not both")
    return Every(every_seconds) if every_seconds is not None else ByClock(parse_cron(cron or ""), zone)


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done about a schedule that is due: fire these times, and then stand at the next one."""

    times: list[datetime]
    next_at: datetime | None

    def steps(self) -> list[tuple[datetime, datetime | None]]:
        """Each time with the one that follows it."""
        return list(zip(self.times, [*self.times[1:], self.next_at], strict=False))


def due_times(rule: Rule, planned: datetime, now: datetime, catch_up: int) -> Due:
    """What to fire of a schedule that stands at ``planned``, which is not in the future.

    The last ``catch_up`` of the times that have come; if that is 0, the last one still if it is merely late.
    """
    times = rule.last(planned, now, max(catch_up, 1))
    if catch_up == 0 and now - times[-1] > LATE:
        times = []
    return Due(times, rule.after(planned, now))
