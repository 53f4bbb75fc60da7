"""What was measured: one JSON line each, so that a run that was ended goes on where it stopped.

A run adds lines to a plain file; at its end that becomes a compressed one, with which a later run goes on.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RATE = "rate"
"""Messages per second."""
P50, P99 = "p50_ms", "p99_ms"
"""Milliseconds: of a message on its way, or of a call where a scenario says so."""
CALL_P50, CALL_P99 = "call_p50_ms", "call_p99_ms"
"""Milliseconds of one step of the client's loop: an enqueue, or a claim with its ack."""
CLIENT_CPU, SERVER_CPU = "client_cpu_us", "server_cpu_us"
"""Microseconds of CPU time per message: of all clients, and of all processes of the database server."""
WAL = "wal_bytes"
"""Bytes of write-ahead log per message."""
SIZE, SIZE_OF = "megabytes", "megabytes of "
"""Curves: the size of all tables, and that of one whose name follows, each with its indexes."""

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Key:
    """What a measurement is of."""

    scenario: str
    variant: str
    contestant: str
    round: int


@dataclass(frozen=True)
class Measured:
    """What a scenario found out about one contestant, once.

    `values` by the names above, or others that the scenario tells in its `metrics`; `curves`: points of
    (seconds since the beginning, value); `messages` and `seconds`: how much it rests on; `problem`: what
    is wrong with it, in which case it counts in no median.
    """

    values: Mapping[str, float]
    messages: int = 0
    seconds: float = 0.0
    curves: Mapping[str, Curve] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True)
class Measurement:
    """A line of the store. `setup`: the place, in the store's list, of what it was measured with."""

    key: Key
    measured: Measured
    setup: int = 0

    def line(self) -> str:
        """As JSON."""
        return json.dumps({**asdict(self.key), **asdict(self.measured), "setup": self.setup})

    @staticmethod
    def parse(line: str) -> Measurement:
        """From such a line."""
        told: dict[str, Any] = json.loads(line)
        key = Key(*(told.pop(name) for name in ("scenario", "variant", "contestant", "round")))
        curves = {name: [(x, y) for x, y in points] for name, points in told.pop("curves").items()}
        setup = told.pop("setup", 0)
        return Measurement(key, Measured(curves=curves, **told), setup)


class Store:
    """A file of measurements, and of what they were measured with: a commit, a server, a machine.

    `setups`: those, the newest last, and `current` the place of the one that is measured with now. What was
    measured with another one is not taken for done, nor compared: a new measurement takes its place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about: dict[str, Any] = {}
        self.setups: list[dict[str, Any]] = []
        self.current = 0
        self._measurements: dict[Key, Measurement] = {}

    def enter(self, setup: Mapping[str, Any]) -> None:
        """Measure with this from now on."""
        if not self.setups or self.setups[-1] != setup:
            self.setups.append(dict(setup))
        self.current = len(self.setups) - 1

    def load(self) -> None:
        """Read what is there; a last line that was cut off is left out."""
        if self.path.exists():
            text = self.path.read_text(encoding="utf-8")
        elif self.packed.exists():
            text = gzip.decompress(self.packed.read_bytes()).decode()
        else:
            return
        lines = text.split("\n")
        whole = [line for line in lines[:-1] if line]
        if whole:
            heading = json.loads(whole[0])
            self.about, self.setups = heading["about"], heading.get("setups", [])
        for line in whole[1:]:
            measurement = Measurement.parse(line)
            self._measurements[measurement.key] = measurement

    @property
    def packed(self) -> Path:
        """The compressed file."""
        return self.path.with_name(f"{self.path.name}.gz")

    def newest(self) -> dict[tuple[str, str], int]:
        """The newest setup that each scenario's variant was measured with."""
        found: dict[tuple[str, str], int] = {}
        for one in self:
            part = (one.key.scenario, one.key.variant)
            found[part] = max(one.setup, found.get(part, 0))
        return found

    def pack(self) -> None:
        """Compress what counts; the same measurements make the same file."""
        if self.path.exists():
            newest = self.newest()
            self._measurements = {
                one.key: one for one in self if one.setup == newest[one.key.scenario, one.key.variant]
            }
            self.start(self.about)
            self.packed.write_bytes(gzip.compress(self.path.read_bytes(), mtime=0))
            self.path.unlink()

    def clear(self) -> None:
        """Forget what was read; the file stays until the next start."""
        self.about = {}
        self.setups = []
        self._measurements = {}

    def start(self, about: Mapping[str, Any]) -> None:
        """Write what is known anew, under this heading."""
        self.about = dict(about)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        heading = json.dumps({"about": self.about, "setups": self.setups})
        lines = [heading, *(m.line() for m in self._measurements.values())]
        self.path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def add(self, key: Key, measured: Measured) -> None:
        """Keep one."""
        measurement = Measurement(key, measured, self.current)
        self._measurements[key] = measurement
        with self.path.open("a") as file:
            file.write(measurement.line() + "\n")

    def __contains__(self, key: Key) -> bool:
        return key in self._measurements and self._measurements[key].setup == self.current

    def __iter__(self) -> Iterator[Measurement]:
        return iter(list(self._measurements.values()))

    def __len__(self) -> int:
        return len(self._measurements)
