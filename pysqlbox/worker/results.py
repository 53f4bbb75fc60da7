"""What a handler may answer, and the exception that asks not to be tried again."""

from __future__ import annotations

from dataclasses import dataclass

from pysqlbox.arguments import Delay

__all__ = ["Ack", "DeadLetter", "Delay", "NonRetryable", "Release", "Result", "Retry"]


@dataclass(frozen=True, slots=True)
class Ack:
    """Done; what returning nothing means too."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after a delay, or under backoff; counts an attempt, and gives up after the last one."""

    delay: Delay | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Hand it back, at once or after a delay; no attempt counted."""

    delay: Delay | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Give the message up, with a reason that is kept."""

    error: str


Result = Ack | Retry | Release | DeadLetter


class NonRetryable(Exception):
    """Raised by a handler: this message can never succeed, so it becomes a dead letter at once."""
