"""Makes the fixtures of `tests.support.plugin` known to every test."""

from __future__ import annotations

pytest_plugins = ["tests.support.plugin"]
