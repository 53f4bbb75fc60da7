"""``pysqlbox demo``: a small shop on a throw-away embedded PostgreSQL, mishaps included.

:mod:`shop` is the application: its tables, its orders and what its workers do. :mod:`command` lets it live
through a day, :mod:`crew` starts the worker processes and kills one, :mod:`closing` does the accounts.
"""

from __future__ import annotations

from pysqlbox.cli.demo.command import demo

__all__ = ["demo"]
