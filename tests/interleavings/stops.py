"""Routines that stop between two of their statements, so that another session's may come there."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.concurrency.planting import Bug, planted
from tests.interleavings.scheduler import Protocol
from tests.support.database import Database

_STOP = "PERFORM pg_advisory_xact_lock_shared(pg_backend_pid(), nextval('pg_temp.stops')::integer);\n    "


@contextlib.contextmanager
def stopping(db: Database, protocol: Protocol, folder: Path, faults: Sequence[Bug] = ()) -> Iterator[None]:
    """The routines of a protocol deployed with its stops, and with faults, and the real ones at the end."""
    changes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file, text in protocol.stops:
        changes[file].append((text, _STOP + text))
    for fault in faults:
        changes[fault.file] = [*fault.changes, *changes[fault.file]]
    with contextlib.ExitStack() as stack:
        for file, pairs in changes.items():
            bug = Bug("a stop" if not faults else faults[0].name, file, pairs, protocol.box)
            stack.enter_context(planted(db, bug, folder))
        yield
