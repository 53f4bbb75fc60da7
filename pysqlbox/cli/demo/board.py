"""Several progress bars at once: drawn over on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass

import click

__all__ = ["Board"]

WIDTH = 32
#: Seconds between two lines where nobody can draw over the last one.
LINE_SECONDS = 2.0


@dataclass(slots=True)
class _Bar:
    label: str
    length: int
    position: int = 0


class Board:
    """Bars by name; ``show`` sets where they are, ``say`` prints a line above them."""

    def __init__(self, **lengths: int) -> None:
        self._bars = {name: _Bar(name, length) for name, length in lengths.items()}
        self._live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False
        self._started = time.monotonic()
        self._line_at = self._started

    def resize(self, **lengths: int) -> None:
        """What was expected turned out to be another number."""
        for name, length in lengths.items():
            self._bars[name].length = length

    def show(self, **positions: int) -> None:
        """Set some bars and draw them."""
        for name, position in positions.items():
            self._bars[name].position = position
        if self._live:
            self._draw()
        elif time.monotonic() - self._line_at >= LINE_SECONDS:
            self._line_at = time.monotonic()
            self._line()

    def say(self, text: str) -> None:
        """A line of text that stays."""
        above = f"\x1b[{len(self._bars)}A\x1b[J" if self._drawn else ""
        click.echo(f"{above}{self._elapsed()}  {text}")
        self._drawn = False
        if self._live:
            self._draw()

    def done(self) -> None:
        """The last state of all bars."""
        if self._live:
            self._draw()
            self._drawn = False
        else:
            self._line()

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._started:5.1f} s"

    def _line(self) -> None:
        parts = (f"{bar.label} {bar.position:,} of {bar.length:,}" for bar in self._bars.values())
        click.echo(f"{self._elapsed()}  {', '.join(parts)}")

    def _draw(self) -> None:
        columns = shutil.get_terminal_size().columns - 1
        lines = [self._bar(bar)[:columns] for bar in self._bars.values()]
        up = f"\x1b[{len(lines)}A" if self._drawn else ""
        click.echo(up + "".join(f"\x1b[K{line}\n" for line in lines), nl=False)
        self._drawn = True

    @staticmethod
    def _bar(bar: _Bar) -> str:
        filled = WIDTH if not bar.length else min(WIDTH, WIDTH * bar.position // bar.length)
        return f"  {bar.label:<8} [{'#' * filled:-<{WIDTH}}] {bar.position:>7,} of {bar.length:,}"
