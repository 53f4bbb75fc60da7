"""Taking over SIGTERM and SIGINT for a while."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

__all__ = ["signals"]


@contextlib.contextmanager
def signals(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Take SIGTERM and SIGINT; in any other thread than the main one signals are not ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
