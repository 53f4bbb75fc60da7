"""What this machine is, and how its processes spend its CPU time."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def now() -> str:
    """The minute, as results tell it."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def machine() -> str:
    """CPUs and system in a line."""
    return f"{os.cpu_count()} CPUs, {_cpu_model()}, {platform.system()} {platform.release()}"


def commit(checkout: Path, *folders: str) -> str:
    """The last commit that changed these folders, with "+" where they have been changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(checkout), *words, "--", *folders], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    found = git("log", "-1", "--format=%h", "--abbrev=10")
    return f"{found}+" if found and git("status", "--porcelain") else found or "unknown"


def load() -> str:
    """The load averages."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def telling(words: Sequence[str]) -> list[str]:
    """A command line without the folders, which say nothing of what was measured."""
    folders = ("--out", "--scratch")
    before = ["", *words]
    return [
        word
        for word, last in zip(words, before, strict=False)
        if last not in folders and not word.startswith(folders)
    ]


def cpu_seconds(process: int) -> float | None:
    """How long a process of this machine has been on a CPU, to the nanosecond; None where nobody tells."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return None


def process_cpu(process: int, *, with_ended_children: bool = False) -> float:
    """User and system time of a process; 0 once it has gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    # After the name come state, parent, …: utime is the 12th, then stime, cutime, cstime.
    return sum(int(value) for value in fields[11 : 15 if with_ended_children else 13]) / TICKS


def machine_cpu() -> tuple[float, float]:
    """CPU time that the whole machine has spent, and all that it had to spend."""
    user, nice, system, idle, waiting, *rest = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    )
    busy = user + nice + system + sum(rest)
    return busy / TICKS, (busy + idle + waiting) / TICKS


def server_cpu(postmaster: int) -> float:
    """CPU time of all processes of a database server, those that have ended included."""
    total = process_cpu(postmaster, with_ended_children=True)
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
    return total + sum(process_cpu(int(child)) for child in children.read_text().split())


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
