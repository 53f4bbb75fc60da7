"""A box that is never empty, as in production, where no claim finds nothing and nobody reaps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from uuid import UUID

from tests.contract.support import KINDS, Box, Row, ids, json_text
from tests.support.database import Database

CLAIMS = 3_000
"""Busy claims within which whatever may be claimed must have come: some seconds of one worker's time."""
BUSY = UUID("bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb")
_FRESH, _BATCH = 4, 20


def busy_claims(db: Database, name: str) -> Iterator[list[Row]]:
    """Enqueues a little, claims more than that, acknowledges all of it; one claim's rows after the other."""
    box = Box(name, KINDS[name], db, db)
    for turn in itertools.count():
        fresh = [box.record(payload=f"busy-{turn}-{number}") for number in range(_FRESH)]
        db.call(f"{name}_enqueue_many", messages=json_text(fresh))
        rows = box.claim(BUSY, batch_size=_BATCH, lease_seconds=600)
        assert rows, "the box was to be busy"
        assert box.ack(BUSY, ids(rows)) == len(rows)
        yield rows


def claims_until(db: Database, name: str, wanted: set[str]) -> tuple[set[str], int, list[str]]:
    """Claims until all of these payloads have come or there were too many claims.

    Answers which did not come, the number of claims, and the payloads in the order in which they came.
    """
    missing = set(wanted)
    came: list[str] = []
    claims = 0
    for rows in itertools.islice(busy_claims(db, name), CLAIMS + len(wanted) // _FRESH):
        if not missing:
            break
        claims += 1
        found = [str(row["payload"]) for row in rows if row["payload"] in wanted]
        came += found
        missing -= set(found)
    return missing, claims, came
