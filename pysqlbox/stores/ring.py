"""A hash ring: which of several nodes a key belongs to."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable

from pysqlbox.errors import InvalidArgument
from pysqlbox.names import StoreKey
from pysqlbox.stores.keys import key_text

__all__ = ["HashRing"]


class HashRing:
    """Spreads keys over nodes; with a node more, only the keys that it gets belong elsewhere than before.

    The same nodes make the same ring in every process and release. A ring decides nothing about messages that
    are in a node already: they stay there and are handled there.
    """

    def __init__(self, nodes: Iterable[StoreKey], *, points: int = 128) -> None:
        """``nodes`` are keys of stores; more ``points`` for each spread the keys more evenly."""
        if isinstance(points, bool) or not isinstance(points, int) or not 1 <= points <= 10_000:
            raise InvalidArgument("points: must be a whole number from 1 to 10000")
        by_text = {key_text(node): node for node in nodes}
        if not by_text:
            raise InvalidArgument("nodes: must be at least one")
        self.nodes = tuple(by_text.values())
        self._points = sorted(
            (_hash(f"{text}\n{number}"), text) for text in by_text for number in range(points)
        )
        self._hashes = [value for value, _ in self._points]
        self._by_text = by_text

    def __call__(self, key: object) -> StoreKey:
        """The node of a key: a customer, a tenant, a FIFO group."""
        position = bisect.bisect_right(self._hashes, _hash(str(key))) % len(self._points)
        return self._by_text[self._points[position][1]]

    def __repr__(self) -> str:
        return f"HashRing({len(self.nodes)} nodes)"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
