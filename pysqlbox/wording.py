"""How the package says what it has counted."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: float, one: str, more: str | None = None) -> str:
    """``1 message``, ``0 messages``, ``2.5 seconds``; ``more`` if there is more to it than an s."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {one if number == 1 else more or one + 's'}"
