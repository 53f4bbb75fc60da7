"""What of payloads and headers stays hidden even from those who may see them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
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
_DEEPEST = 100
#: A field of something like JSON that cannot be read as such.
_FIELD = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:\s*)("(?:[^"\\]|\\.)*(?:"|$)|[^\s,}\]]+)')


@dataclass(frozen=True, slots=True)
class Shown:
    """A payload as a page shows it."""

    text: str
    masked: int
    """How many fields are hidden."""
    cut: int
    """How many characters of it are left out."""
    is_json: bool


class _Number(str):
    """A number as it was written: no digit of it is lost on the way."""


class Masking:
    """Hides the values of certain fields of JSON, at any depth."""

    def __init__(self, fields: Collection[str] = MASKED_FIELDS) -> None:
        self._fields = [each.lower() for each in fields]

    def payload(self, text: str) -> Shown:
        """A payload with its fields hidden, put in order if it is JSON.

        What cannot be read, or is nested too deeply, is searched for what looks like a field.
        """
        try:
            found = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Pairs)
            return self._shown(found)
        except (ValueError, RecursionError):
            return self._scrubbed(text)

    def value(self, value: object) -> Shown:
        """The same for a value that is decoded already: headers."""
        return self.payload(json.dumps(value, ensure_ascii=False))

    def _shown(self, value: object) -> Shown:
        masked = [0]
        text = "".join(self._written(value, "\n", masked))
        return _cut(text, masked[0], is_json=True)

    def _written(self, value: object, line: str, masked: list[int]) -> Iterator[str]:
        if len(line) > 2 * _DEEPEST:
            raise RecursionError
        if isinstance(value, _Pairs | list) and value:
            deeper = line + "  "
            yield "{" if isinstance(value, _Pairs) else "["
            for number, each in enumerate(value):
                yield "," + deeper if number else deeper
                if isinstance(value, _Pairs):
                    name, each = each
                    yield json.dumps(name, ensure_ascii=False) + ": "
                    if self._is_masked(name):
                        masked[0] += 1
                        each = MASK
                yield from self._written(each, deeper, masked)
            yield line + ("}" if isinstance(value, _Pairs) else "]")
        elif isinstance(value, _Number):
            yield value
        else:
            yield "{}" if isinstance(value, _Pairs) else json.dumps(value, ensure_ascii=False)

    def _scrubbed(self, text: str) -> Shown:
        masked = 0

        def hide(field: re.Match[str]) -> str:
            nonlocal masked
            if not self._is_masked(field[1]):
                return field[0]
            masked += 1
            return f'"{field[1]}"{field[2]}"{MASK}"'

        shown = _cut(text, 0, is_json=False)
        return Shown(_FIELD.sub(hide, shown.text), masked, shown.cut, is_json=False)

    def _is_masked(self, name: str) -> bool:
        return any(fnmatchcase(name.lower(), pattern) for pattern in self._fields)


class _Pairs(list[tuple[str, object]]):
    """An object's fields in their order, also where a name comes twice."""


def _cut(text: str, masked: int, *, is_json: bool) -> Shown:
    return Shown(text[:_LONGEST], masked, max(0, len(text) - _LONGEST), is_json)
