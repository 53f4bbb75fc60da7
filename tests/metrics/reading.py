"""Reads Prometheus text as its own parser does: strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_COMMENT = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line."""

    name: str
    labels: Mapping[str, str]
    value: float


def read(text: str) -> list[Sample]:
    """The samples; AssertionError where the text is not what the format allows."""
    assert text.endswith("\n")
    return list(_read(text))


def value(samples: list[Sample], name: str, **labels: str) -> float:
    """The value of the one sample that has this name and these labels, and perhaps others."""
    (found,) = [each.value for each in samples if each.name == name and labels.items() <= each.labels.items()]
    return found


def _read(text: str) -> Iterator[Sample]:
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    current = ""
    for line in text[:-1].split("\n"):
        if line.startswith("#"):
            comment = _COMMENT.fullmatch(line)
            assert comment, line
            what, current, rest = comment.groups()
            if what == "HELP":
                assert current not in helped, f"a second family {current}"
                helped.add(current)
            else:
                assert current in helped
                assert rest in ("counter", "gauge", "histogram")
                kinds[current] = rest
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        name, _, inside, number = sample.groups()
        parts = ("", "_bucket", "_sum", "_count") if kinds[current] == "histogram" else ("",)
        assert name in {current + part for part in parts}, f"{name} among {current}"
        labels = dict(_labels(inside or ""))
        key = name, frozenset(labels.items())
        assert key not in seen, f"twice: {line}"
        seen.add(key)
        yield Sample(name, labels, float(number))


def _labels(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        assert label, text
        yield label[1], re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], label[2])
        at = label.end()
