"""Django: transactions for the worker's transactional handlers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pysqlbox.extras import needed_for

__all__ = ["atomic"]


@contextlib.contextmanager
def atomic(using: str = "default") -> Iterator[Any]:
    """``transaction.atomic`` as a context manager of its connection: ``transactional=atomic``.

    Old connections are put away before and after, as Django does around its requests.
    """
    with needed_for("pysqlbox.contrib.django", "django"):
        from django.db import close_old_connections, connections, transaction

    close_old_connections()
    try:
        with transaction.atomic(using=using):
            yield connections[using]
    finally:
        close_old_connections()
