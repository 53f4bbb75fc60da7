"""The small picture of a rate over the last minutes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["HEIGHT", "WIDTH", "points"]

WIDTH, HEIGHT = 240, 44


def points(values: Sequence[float | None]) -> str:
    """A line for an SVG's polyline, the newest at the right; what is not known yet is left out."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    top = max(max(known), 1e-9)
    step = WIDTH / (len(values) - 1)
    return " ".join(
        f"{number * step:.1f},{HEIGHT - 2 - (HEIGHT - 4) * value / top:.1f}"
        for number, value in enumerate(values)
        if value is not None
    )
