"""The boxes of every test deployment."""

from __future__ import annotations

from pysqlbox.deploy.names import Box

BOXES = (Box("orders", "inbox"), Box("mail", "outbox"))
"""Named boxes, one of each kind, beside the default ones."""
SCHEMA = "infra"
