"""What holds in a child process of a test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def child(right: Callable[[], bool]) -> int:
    """What a child ends with: 0 if it is right. One that waits for what nobody will do is ended."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        try:
            os._exit(0 if right() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
