"""Cron texts: five fields, read once, and the moments they mean in a time zone.

A text names local times. What becomes of them when clocks are put forward or back:

- A text for **certain hours** means each of its local times once. One that does not exist, because the clock
  jumps over it, means the first moment behind the jump; of one that comes twice the first counts.
- A text for **every hour** goes by what the clock shows: nothing is put off, and the hour that comes twice
  has its times twice. So ``*/15 * * * *`` is every quarter of an hour, whatever is done to the clock.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from pysqlbox.errors import InvalidArgument

__all__ = ["Cron", "parse_cron", "zone_of"]

DAY = timedelta(days=1)
#: A text that means nothing in so many years never does: a 29th of February on a certain weekday takes 40.
HORIZON_YEARS = 60
#: Python's calendar ends with 9999; a zone's offset must not lead beyond.
FIRST_YEAR, LAST_YEAR = 1, 9998

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class _Field:
    """What one of the five may hold."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def read(self, text: str) -> frozenset[int]:
        """The values that a field's text stands for."""
        return frozenset(value for part in text.split(",") for value in self._part(part))

    def _part(self, text: str) -> range:
        span, slash, step = text.partition("/")
        width = self._number(step, 1, self.high - self.low) if slash else 1
        if span == "*":
            return range(self.low, self.high + 1, width)
        first, dash, last = span.partition("-")
        start = self._value(first)
        if not dash:
            return range(start, (self.high if slash else start) + 1, width)
        end = self._value(last)
        if end < start and self.name == "weekday" and end == 0:
            end = 7  # a week may end with Sunday
        if end < start:
            raise self._wrong(f"{span} goes backwards")
        return range(start, end + 1, width)

    def _value(self, text: str) -> int:
        if text.lower() in self.names:
            return self.names.index(text.lower()) + self.low
        return self._number(text, self.low, self.high)

    def _number(self, text: str, low: int, high: int) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 4 and low <= int(text) <= high):
            raise self._wrong(f"{text[:20]!r} is no number from {low} to {high}")
        return int(text)

    def _wrong(self, what: str) -> InvalidArgument:
        return InvalidArgument(
            f"cron: in the field for the {self.name} {what}; write five fields, as in 0 3 * * 1-5"
        )


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron text that was read. ``weekdays`` count from Sunday, which is 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    #: Whether a day has to fit the days and the weekdays: one of them begins with ``*``. Else one will do.
    both: bool

    @property
    def every_hour(self) -> bool:
        """Whether it goes by what the clock shows."""
        return len(self.hours) == 24

    def fits(self, day: date) -> bool:
        """Whether it means any time of a day."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day and by_weekday if self.both else by_day or by_weekday

    def after(self, moment: datetime, zone: tzinfo) -> datetime | None:
        """The first moment behind the given one, in UTC; None if there is none."""
        return next((found for found in self.ahead(moment, zone) if found > moment), None)

    def ahead(self, moment: datetime, zone: tzinfo) -> Iterator[datetime]:
        """Moments from about the given one on, in their order."""
        start = _day_of(moment, zone) - DAY if moment.year > FIRST_YEAR else _day_of(moment, zone)
        pending: list[datetime] = []
        for day in self._days(start, 1):
            # No offset is a day or longer: what lies before this is before everything of that day.
            ready = bisect.bisect_left(pending, _midnight(day) - DAY)
            yield from pending[:ready]
            pending = sorted({*pending[ready:], *_moments(self, day, zone)})
        yield from pending

    def back(self, moment: datetime, zone: tzinfo) -> Iterator[datetime]:
        """Moments from about the given one back, the latest first."""
        start = _day_of(moment, zone) + DAY
        pending: list[datetime] = []
        for day in self._days(start, -1):
            ready = bisect.bisect_right(pending, _midnight(day) + 2 * DAY)
            yield from reversed(pending[ready:])
            pending = sorted({*pending[:ready], *_moments(self, day, zone)})
        yield from reversed(pending)

    def _days(self, start: date, step: int) -> Iterator[date]:
        """The days that fit, from one on; months that do not fit are passed over as a whole."""
        day = start
        last_year = min(max(start.year + step * HORIZON_YEARS, FIRST_YEAR + 1), LAST_YEAR)
        while (last_year - day.year) * step >= 0 and FIRST_YEAR < day.year <= LAST_YEAR:
            if day.month in self.months:
                if self.fits(day):
                    yield day
                day += step * DAY
            elif step > 0:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
            else:
                day = day.replace(day=1) - DAY


@lru_cache(maxsize=256)
def parse_cron(text: str) -> Cron:
    """Read a cron text; InvalidArgument says what is wrong with it."""
    fields = text.split() if isinstance(text, str) else []
    if len(fields) != len(_FIELDS):
        raise InvalidArgument("cron: must be five fields: minute, hour, day of the month, month, weekday")
    minutes, hours, days, months, weekdays = (
        field.read(each) for field, each in zip(_FIELDS, fields, strict=True)
    )
    both = fields[2].startswith("*") or fields[4].startswith("*")
    found = Cron(minutes, hours, days, months, frozenset(each % 7 for each in weekdays), both)
    if found.after(datetime(2000, 1, 1, tzinfo=UTC), UTC) is None:
        raise InvalidArgument("cron: means a day that never comes; name one that some month has")
    return found


def zone_of(name: str) -> tzinfo:
    """A time zone by its IANA name; InvalidArgument if this machine knows none of that name."""
    if name == "UTC":
        return UTC  # also where there is no time zone database
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError, TypeError):  # a name may be no key, no path, a folder, no text
        raise InvalidArgument(
            "timezone: this machine knows none of that name;"
            " if it should, install its time zone database or pip install tzdata"
        ) from None


@lru_cache(maxsize=64)
def _moments(cron: Cron, day: date, zone: tzinfo) -> tuple[datetime, ...]:
    """What a text means on a local day, in UTC, each moment once."""
    found = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            local = datetime.combine(day, time(hour, minute))
            shown = _shown(local, zone)
            if cron.every_hour:
                found.update(shown)
            else:
                found.add(min(shown) if shown else _behind_jump(local, zone))
    return tuple(sorted(found))


def _shown(local: datetime, zone: tzinfo) -> set[datetime]:
    """When a zone's clocks show a local time: once, twice or never."""
    found = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return {moment for moment in found if moment.astimezone(zone).replace(tzinfo=None, fold=0) == local}


def _behind_jump(local: datetime, zone: tzinfo) -> datetime:
    """The first moment after the clocks have jumped over a local time."""
    early, late = sorted(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    before = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):
        middle = early + timedelta(seconds=int((late - early).total_seconds()) // 2)
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late


def _day_of(moment: datetime, zone: tzinfo) -> date:
    return moment.astimezone(zone).date()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
