"""The boxes of every test deployment."""

from __future__ import annotations

from pysqlbox.names import NamedBox

BOXES = (NamedBox("orders", "inbox"), NamedBox("mail", "outbox"))
"""Named boxes, one of each kind, beside the default ones."""
SCHEMA = "infra"
