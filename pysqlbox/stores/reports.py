"""What was done about each of several stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from pysqlbox.messages import Finding, TopicStats
from pysqlbox.names import StoreKey

__all__ = ["Refreshed", "StoreDoctor", "StoreMigration", "StoreStats", "StoreUpkeep"]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh has changed, by key; ``broken`` are those that cannot be used as they were given."""

    added: list[StoreKey] = field(default_factory=list)
    changed: list[StoreKey] = field(default_factory=list)
    removed: list[StoreKey] = field(default_factory=list)
    broken: list[StoreKey] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoreMigration:
    """What a deployment has changed in a store: nothing, if it was up to date."""

    key: StoreKey
    ok: bool
    error: str | None = None
    changes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """A store's counts by box; of each box its topics, and the whole last."""

    key: StoreKey
    ok: bool
    error: str | None = None
    stats: dict[str, list[TopicStats]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoreDoctor:
    """What doctor found in a store; ``ok``: it could be asked, and there is neither warning nor error."""

    key: StoreKey
    ok: bool
    error: str | None = None
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoreUpkeep:
    """How many of what upkeep has removed or taken back in a store, or in a deployment, whose key is None."""

    key: StoreKey | None
    ok: bool
    error: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
