"""What of payloads and headers stays hidden even from those who may see them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["MASK", "MASKED_FIELDS", "Masking", "Shown"]

MASK = "••••••"
#: Names of fields, * standing for any letters, upper and lower case alike.
MASKED_FIELDS = (
    "*password*", "*passwd*", "*secret*", "*token*", "*api_key*", "*apikey*", "authorization", "cookie",
    "*card_number*", "*cardnumber*", "cvc", "cvv", "iban", "pin", "ssn",
)  # fmt: skip
_LONGEST = 200_000


@dataclass(frozen=True, slots=True)
class Shown:
    """A payload as a page shows it."""

    text: str
    masked: int
    """How many fields are hidden."""
    cut: int
    """How many characters of it are left out."""
    is_json: bool


class Masking:
    """Hides the values of certain fields of JSON, at any depth. Text that is not JSON has no fields."""

    def __init__(self, fields: Collection[str] = MASKED_FIELDS) -> None:
        self._fields = [each.lower() for each in fields]

    def payload(self, text: str) -> Shown:
        """A payload with its fields hidden, put in order if it is JSON."""
        try:
            found = json.loads(text)
            hidden, masked = self._hide(found)
            pretty = json.dumps(hidden, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return _cut(text, 0, is_json=False)
        return _cut(pretty, masked, is_json=True)

    def value(self, value: object) -> Shown:
        """The same for a value that is decoded already: headers."""
        hidden, masked = self._hide(value)
        return _cut(json.dumps(hidden, indent=2, ensure_ascii=False), masked, is_json=True)

    def _hide(self, value: object) -> tuple[object, int]:
        if isinstance(value, dict):
            masked = 0
            fields: dict[str, object] = {}
            for name, each in value.items():
                if any(fnmatchcase(name.lower(), pattern) for pattern in self._fields):
                    fields[name], more = MASK, 1
                else:
                    fields[name], more = self._hide(each)
                masked += more
            return fields, masked
        if isinstance(value, list):
            items = [self._hide(each) for each in value]
            return [item for item, _ in items], sum(more for _, more in items)
        return value, 0


def _cut(text: str, masked: int, *, is_json: bool) -> Shown:
    return Shown(text[:_LONGEST], masked, max(0, len(text) - _LONGEST), is_json)
