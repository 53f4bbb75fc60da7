"""By how much tests wait longer on an engine that takes its time: one factor, for all of them."""

from __future__ import annotations

from pysqlbox.names import Dialect

SLOW = 5.0
"""Babelfish parses a procedure anew in each session: some first calls take seconds on a busy machine."""


def of(dialect: Dialect) -> float:
    """By what a test multiplies its waits; what it expects in the end is the same everywhere."""
    return SLOW if dialect == "mssql" else 1.0
