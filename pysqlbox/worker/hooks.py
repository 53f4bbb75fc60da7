"""What an application wants to be called for at a worker's start and end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Hooks"]


@dataclass(slots=True)
class Hooks:
    """Functions without arguments, in the order in which they are called."""

    on_start: list[Callable[[], Any]] = field(default_factory=list)
    on_stop: list[Callable[[], Any]] = field(default_factory=list)
