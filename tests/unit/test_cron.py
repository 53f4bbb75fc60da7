"""Cron texts: what they mean, minute by minute against the clock of a zone, and which are refused."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest

from pysqlbox.cron import parse_cron, zone_of
from pysqlbox.errors import InvalidArgument

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
CHANGES = {
    "Europe/Berlin": ["2026-03-29", "2026-10-25"],
    "America/New_York": ["2026-03-08", "2026-11-01"],
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],  # by half an hour
    "America/St_Johns": ["2006-04-02", "2006-10-29"],  # at one minute past midnight
    "Africa/Cairo": ["2026-04-24", "2026-10-29"],  # at midnight
    "America/Santiago": ["2026-04-04", "2026-09-06"],
    "Pacific/Apia": ["2011-12-30"],  # a day that never was
    "Asia/Kathmandu": ["2026-03-29"],
}
"""Zones, and days on which their clocks change."""
TEXTS = [
    "*/15 * * * *", "30 2 * * *", "0 2 * * *", "0 3 * * *", "15,45 1-3 * * *", "0 */2 * * *", "5 * * * *",
    "*/20 2 * * *", "59 23 * * *", "0 0 * * *", "1-10/3 0-23/6 * * *", "*/7 * * * sun,mon",
    "30 0,1,2 30,31 * *",
    "0 12 * * *", "*/15 2 29 3 *",
]  # fmt: skip


class Slow:
    """What a text means, worked out by looking at every minute; reads the fields in its own way."""

    def __init__(self, text: str) -> None:
        fields = text.split()
        bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
        read = [self._values(field, *bound) for field, bound in zip(fields, bounds, strict=True)]
        self.minutes, self.hours, self.days, self.months, self.weekdays = read
        self.stars = fields[2][0] == "*" or fields[4][0] == "*"

    @staticmethod
    def _values(text: str, low: int, high: int) -> set[int]:
        for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"]):
            text = text.replace(name, str(number))
        found = set()
        for part in text.split(","):
            span, _, step = part.partition("/")
            first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
            end = int(last) if last else high if step else int(first)
            found |= {
                value for value in range(int(first), end + 1) if (value - int(first)) % int(step or 1) == 0
            }
        return found

    def fits_day(self, day: date) -> bool:
        """Whether a day is meant."""
        weekday = day.isoweekday()
        fits = [day.day in self.days, weekday in self.weekdays or weekday % 7 in self.weekdays]
        return day.month in self.months and (all(fits) if self.stars else any(fits))

    def fits(self, local: datetime) -> bool:
        """Whether a local time is meant."""
        return local.minute in self.minutes and local.hour in self.hours and self.fits_day(local.date())

    def moments(self, zone: tzinfo, start: datetime, end: datetime) -> list[datetime]:
        """Every moment between two, which lie away from any change of clocks."""
        shown = clock(zone, start, end)
        if self.hours == set(range(24)):
            return sorted(each for local, found in shown.items() if self.fits(local) for each in found)
        found = set()
        local, last = min(shown), max(shown)
        while local <= last:
            if self.fits(local):
                # The first time that it is shown, or else the first time that anything later is.
                later = (each for late, moments in shown.items() if late > local for each in moments)
                found.add(shown[local][0] if local in shown else min(later))
            local += MINUTE
        return sorted(found)


@lru_cache(maxsize=32)
def clock(zone: tzinfo, start: datetime, end: datetime) -> dict[datetime, list[datetime]]:
    """When each local time is shown, between two moments."""
    shown: dict[datetime, list[datetime]] = {}
    moment = start
    while moment < end:
        shown.setdefault(moment.astimezone(zone).replace(tzinfo=None, fold=0), []).append(moment)
        moment += MINUTE
    return shown


def slowly(text: str, zone: tzinfo, start: datetime, end: datetime) -> list[datetime]:
    """The moments of a text in some days, and not those of the days about them."""
    found = Slow(text).moments(zone, start - DAY, end + DAY)
    return [moment for moment in found if start <= moment < end]


def after(text: str, zone: tzinfo, start: datetime, end: datetime) -> list[datetime]:
    """The same by asking for one after the other."""
    found = []
    moment = start - MINUTE / 60
    while (following := parse_cron(text).after(moment, zone)) is not None and following < end:
        assert following > moment
        found.append(following)
        moment = following
    return found


def back(text: str, zone: tzinfo, start: datetime, end: datetime) -> list[datetime]:
    """The same, going back."""
    earlier = parse_cron(text).back(end, zone)
    found = itertools.takewhile(lambda moment: moment >= start, (each for each in earlier if each < end))
    return [*found][::-1]


@pytest.mark.parametrize(("zone", "day"), [(zone, day) for zone, days in CHANGES.items() for day in days])
def test_what_a_text_means_around_a_change_of_clocks(zone: str, day: str) -> None:
    middle = datetime.fromisoformat(day).replace(tzinfo=UTC)
    start, end = middle - timedelta(hours=30), middle + timedelta(hours=42)
    for text in TEXTS:
        expected = slowly(text, ZoneInfo(zone), start, end)
        assert after(text, ZoneInfo(zone), start, end) == expected, text
        assert back(text, ZoneInfo(zone), start, end) == expected, text


def _field(random_: random.Random, low: int, high: int) -> str:
    def part() -> str:
        first, last = sorted(random_.choices(range(low, high + 1), k=2))
        step = f"/{random_.randint(1, high - low)}"
        return random_.choice(
            ["*", str(first), f"{first}-{last}", f"*{step}", f"{first}-{last}{step}", f"{first}{step}"]
        )

    return ",".join(part() for _ in range(random_.choice([1, 1, 1, 2, 3])))


def _never(text: str) -> bool:
    """Whether a text names a day that never comes, which a calendar of 45 years must bear out."""
    try:
        parse_cron(text)
    except InvalidArgument as error:
        refusal = str(error)
    else:
        return False
    first = date(1996, 1, 1)
    return "never comes" in refusal and not any(Slow(text).fits_day(first + n * DAY) for n in range(16_436))


@pytest.mark.parametrize("seed", range(24))
def test_any_text_means_the_same_as_minute_by_minute(seed: int) -> None:
    random_ = random.Random(seed)
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    zone = random_.choice(sorted(CHANGES))
    day = datetime.fromisoformat(random_.choice(CHANGES[zone])).replace(tzinfo=UTC)
    for _ in range(5):
        text = " ".join(_field(random_, *bound) for bound in bounds)
        if _never(text):
            continue
        start, end = day - timedelta(hours=26), day + timedelta(hours=30)
        expected = slowly(text, ZoneInfo(zone), start, end)
        assert after(text, ZoneInfo(zone), start, end) == expected, text
        assert back(text, ZoneInfo(zone), start, end) == expected, text


@pytest.mark.parametrize("seed", range(20))
def test_days_far_away_are_found(seed: int) -> None:
    """Years at a time: days, months and weekdays against a calendar."""
    random_ = random.Random(seed)
    fields = [_field(random_, *bound) for bound in ((1, 31), (1, 12), (0, 7))]
    text = " ".join(["0", "12", *fields])
    if _never(text):
        return
    cron = parse_cron(text)
    start = date(2026, 1, 1)
    expected = [day for n in range(366 * 9) if Slow(text).fits_day(day := start + timedelta(days=n))][:50]
    found = cron.ahead(datetime(2026, 1, 1, tzinfo=UTC), UTC)
    days = [each.date() for each in itertools.islice((e for e in found if e.date() >= start), len(expected))]
    assert days == expected


def _times(text: str, zone: str, first: str, count: int) -> list[str]:
    moment = datetime.fromisoformat(first).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    found = []
    for _ in range(count):
        following = parse_cron(text).after(moment, zone_of(zone))
        assert following is not None
        moment = following
        found.append(f"{moment.astimezone(ZoneInfo(zone)):%d. %H:%M%z}")
    return found


def test_a_time_that_the_clock_jumps_over_comes_right_behind_the_jump() -> None:
    assert _times("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", 2) == [
        "29. 03:00+0200",
        "30. 02:30+0200",
    ]
    # Several of them are one; it need not be on a full hour.
    assert _times("*/15 2 * * *", "America/New_York", "2026-03-08 00:00", 2) == [
        "08. 03:00-0400",
        "09. 02:00-0400",
    ]
    assert _times("5 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", 2) == [
        "04. 02:30+1100",
        "05. 02:05+1100",
    ]


def test_a_time_that_comes_twice_counts_once() -> None:
    assert _times("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", 2) == [
        "25. 02:30+0200",
        "26. 02:30+0100",
    ]
    assert _times("30 1 * * *", "America/New_York", "2026-10-31 12:00", 2) == [
        "01. 01:30-0400",
        "02. 01:30-0500",
    ]
    assert _times("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", 2) == [
        "05. 01:45+1100",
        "06. 01:45+1030",
    ]


def test_a_text_for_every_hour_goes_on_by_the_quarter() -> None:
    for zone, days in CHANGES.items():
        if zone == "America/St_Johns":
            continue  # whose clock changes at 00:01
        for day in days:
            middle = datetime.fromisoformat(day).replace(tzinfo=UTC)
            start, end = middle - timedelta(hours=30), middle + timedelta(hours=42)
            found = after("*/15 * * * *", ZoneInfo(zone), start, end)
            assert found == [start + number * timedelta(minutes=15) for number in range(72 * 4)]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0 0 * JAN *", "0 0 * 1 *"),
        ("0 0 * jan-Mar,dec *", "0 0 * 1,2,3,12 *"),
        ("0 0 * * SUN", "0 0 * * 0"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * fri-sun", "0 0 * * 5,6,0"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("\t0  0 *\n* * ", "0 0 * * *"),
        ("00 007 * * *", "0 7 * * *"),
        ("50/5 * * * *", "50,55 * * * *"),
        ("1-59/2 * * * *", "1/2 * * * *"),
        ("1,1,1 * * * *", "1 * * * *"),
        ("* 0-23 * * *", "* * * * *"),
    ],
)
def test_ways_to_write_the_same(text: str, same: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    first, second = (itertools.islice(parse_cron(each).ahead(start, UTC), 200) for each in (text, same))
    assert [*first] == [*second]


def test_a_day_fits_either_field_or_both() -> None:
    friday_13 = parse_cron("0 0 */1 * fri")
    assert friday_13.fits(date(2026, 11, 20))
    either = parse_cron("0 0 13 * fri")
    assert either.fits(date(2026, 11, 20))
    assert either.fits(date(2026, 12, 13))
    assert not either.fits(date(2026, 12, 14))
    both = parse_cron("0 0 1-7 * */2")
    assert [day for day in range(1, 31) if both.fits(date(2026, 11, day))] == [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("text", "what"),
    [
("", "five fields"), ("* * * *", "five fields"), ("* * * * * *", "five fields"),
        ("@daily", "five fields"), ("60 * * * *", "minute '60'"), ("-1 * * * *", "minute"),
        ("1- * * * *", "minute"), ("1-2-3 * * * *", "minute"), ("1,,2 * * * *", "minute"),
        (", * * * *", "minute"), ("x * * * *", "minute 'x'"), ("1.5 * * * *", "minute"),
        ("+1 * * * *", "minute"), ("1_0 * * * *", "minute"), ("\u0661 * * * *", "minute"),
        ("** * * * *", "minute"), ("*/0 * * * *", "minute"), ("*/60 * * * *", "minute"),
        ("*/ * * * *", "minute"), ("*/2/2 * * * *", "minute"), ("/2 * * * *", "minute"),
        ("5-1 * * * *", "backwards"), ("99999 * * * *", "minute"), ("?" * 300, "five"),
        ("* 24 * * *", "hour"), ("* * 0 * *", "day of the month"), ("* * 32 * *", "day of the month"),
        ("* * L * *", "day of the month"), ("* * * 0 *", "month"), ("* * * 13 *", "month"),
        ("* * * sun *", "month"), ("* * * dec-jan *", "backwards"), ("* * * * 8", "weekday"),
        ("* * * * mon#1", "weekday"), ("* * * * sat-mon", "backwards"), ("0 0 31 2 *", "never comes"),
        ("0 0 30 feb *", "never comes"), ("0 0 31 4,6,9,11 *", "never comes"),
    ],
)  # fmt: skip
def test_a_bad_text_is_refused_with_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^cron: ") as caught:
        parse_cron(text)
    assert what in str(caught.value)
    assert len(str(caught.value)) < 150


def test_rare_days_are_no_days_that_never_come() -> None:
    assert _times("0 0 29 2 *", "UTC", "2096-03-01 00:00", 1) == ["29. 00:00+0000"]
    for weekday in range(0, 7, 6):
        parse_cron(f"0 0 29 2 */{weekday or 1}")
    assert parse_cron("0 0 31 4 1").fits(date(2026, 4, 6)), "either field does"


def test_the_calendars_end_is_an_end() -> None:
    cron = parse_cron("0 0 1 1 *")
    assert cron.after(datetime(9998, 12, 30, tzinfo=UTC), UTC) is None
    assert [*itertools.islice(cron.back(datetime(1, 1, 1, tzinfo=UTC), UTC), 5)] == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Nowhere/City",
        "europe berlin",
        "../../etc/passwd",
        "/etc/localtime",
        "Europe",
        "UTC ",
        "a\0b",
        "x" * 5000,
    ],
)
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^timezone: .* pip install tzdata"):
        zone_of(name)


def test_utc_needs_no_time_zone_database() -> None:
    assert zone_of("UTC") is UTC
    assert zone_of("Europe/Berlin").utcoffset(datetime(2026, 7, 1)) == timedelta(hours=2)
