"""How values read on a page."""

from __future__ import annotations

import base64
import re
import unicodedata
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from markupsafe import Markup

__all__ = ["age", "ago", "count", "key_path", "pack", "path_key", "rate", "unpack", "visible", "when"]


def visible(value: object) -> object:
    """For everything that a page prints: no value is empty text; control and format characters show as \\x1b.

    So nothing in a message hides, reverses or reorders what stands around it.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return value if value.isprintable() else "".join(map(_visible, value))


def _visible(character: str) -> str:
    if character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()


def count(value: int | None) -> str:
    """A number as it is read at a glance."""
    if value is None:
        return "\N{EN DASH}"
    for limit, unit in ((10**9, "G"), (10**7, "M")):
        if abs(value) >= limit:
            return f"{value / (10**9 if unit == 'G' else 10**6):,.1f}\N{NARROW NO-BREAK SPACE}{unit}"
    return f"{value:,}"


def rate(value: float | None) -> str:
    """So many per second."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def age(seconds: float | None) -> str:
    """A length of time as a person says it."""
    if seconds is None:
        return "\N{EN DASH}"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}\N{NARROW NO-BREAK SPACE}{unit}"
    text = f"{max(seconds, 0):.1f}" if seconds < 10 else f"{seconds:.0f}"
    return f"{text}\N{NARROW NO-BREAK SPACE}s"


def when(value: datetime | None) -> Markup:
    """A time to the second, in UTC; the pointer shows how long ago that is, or how long it still takes."""
    if value is None:
        return _NONE
    return _TIME.format(value.isoformat(), _away(value), _moment(value))


def ago(value: datetime | None) -> Markup:
    """The other way round."""
    if value is None:
        return _NONE
    return _TIME.format(value.isoformat(), f"{_moment(value)} UTC", _away(value))


_NONE = Markup('<span class="none">\N{EN DASH}</span>')
_TIME = Markup('<time datetime="{}" title="{}">{}</time>')


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}"


def _away(value: datetime) -> str:
    away = (datetime.now(UTC) - value).total_seconds()
    return f"{age(away)} ago" if away >= 0 else f"in {age(-away)}"


def pack(text: str) -> str:
    """A text for a hidden field, as plain ASCII: browsers change line ends, and pages control characters."""
    return quote(text, safe="")


def unpack(text: str) -> str:
    """The text again."""
    return unquote(text)


def key_path(key: str) -> str:
    """A store's key as a part of a path: itself where it is plain, for proxies disagree about %2F."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return key
    return "~" + base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()


def path_key(path: str) -> str:
    """The key again; of what is no such path, what no store has for a key."""
    if not path.startswith("~"):
        return path
    try:
        body = path[1:]
        return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return path
