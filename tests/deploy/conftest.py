"""Fixtures of the deployment tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.release import Release


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """A small release that the test may change."""
    return Release(tmp_path)
