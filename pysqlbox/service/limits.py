"""What the service takes at most, of memory, of time and of the database."""

from __future__ import annotations

from dataclasses import dataclass

from pysqlbox.errors import InvalidArgument

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Above ``body_bytes`` a request is refused with 413, above ``array_length`` with 400."""

    body_bytes: int = 1_048_576
    array_length: int = 1000
    """Messages or ids in one request, and rows in one answer."""
    body_seconds: float = 20.0
    """How long a client may take to send its body."""
    call_seconds: float = 30.0
    """How long the database may take for a request, waiting for a thread included."""
    threads: int = 16
    """How many requests are with the database at once; the others wait, and hold no connection."""
    waiting: int = 1000
    """How many requests may wait for a thread; more are told to come again."""
    retry_after: int = 2
    """Seconds that a client is asked to wait while the database is away."""

    def __post_init__(self) -> None:
        for name in ("body_bytes", "array_length", "threads", "retry_after"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name}: must be at least 1")
        for name in ("body_seconds", "call_seconds"):
            if getattr(self, name) <= 0:
                raise InvalidArgument(f"{name}: must be above 0")
        if self.waiting < 0:
            raise InvalidArgument("waiting: must be at least 0")
