"""Prometheus' own tool, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None and not os.environ.get("CI"),
    reason="promtool is not here: install Debian's package prometheus (tools/system_packages.sh)",
)
"""In CI a missing tool fails instead."""


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it."""
    assert PROMTOOL is not None, "promtool is not here"
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=120, check=False)
