"""Alembic: the steps of a migration that deploys pysqlbox.

``def upgrade(): deploy(op.get_bind())`` and ``def downgrade(): refuse()``. Alembic is not imported here.
"""

from __future__ import annotations

from typing import Any

from pysqlbox.deploy.plan import Plan
from pysqlbox.errors import InvalidState

__all__ = ["deploy", "refuse"]


def deploy(bind: Any, *, schema: str = "infra", **options: Any) -> Plan:
    """Deploy to the database of a SQLAlchemy connection; options as of ``pysqlbox.deploy.migrate.migrate``.

    It commits by itself, on a connection of its own, and changes nothing the second time.
    """
    from pysqlbox.deploy.migrate import migrate

    return migrate(bind.engine.url.render_as_string(hide_password=False), schema=schema, **options)


def refuse() -> None:
    """The way back of such a migration: there is none."""
    raise InvalidState(
        "pysqlbox's schema is not taken back, for it may hold messages: leave it, or drop it by hand"
    )
