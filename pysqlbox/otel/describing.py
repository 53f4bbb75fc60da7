"""What every operation on a box tells of itself."""

from __future__ import annotations

import re
from typing import Any

from pysqlbox.otel import names
from pysqlbox.otel.instruments import Attributes

__all__ = ["common"]


def common(db: Any, box: str, name: str, kind: str) -> Attributes:
    """What every operation on a box tells."""
    found: Attributes = {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.OPERATION_NAME: name,
        names.OPERATION_TYPE: kind,
        names.BOX: box,
    }
    key = getattr(db, "store_key", None)
    if key is not None:
        found[names.STORE] = str(key)
    host, port = _server(db.target)
    if host:
        found[names.SERVER_ADDRESS] = host
    if host and port:
        found[names.SERVER_PORT] = port
    return found


def _server(target: Any) -> tuple[str | None, int | None]:
    """The server's address, where the URL names one and only one."""
    shown = re.fullmatch(r"(?:[a-z]+://|odbc:)(?P<server>[^/]*)/.*", str(target.display))
    match = re.fullmatch(
        r"(?P<host>\[[^\]]+\]|[^:,;\s\[\]]+)(?:[:,](?P<port>[0-9]+))?", shown["server"] if shown else ""
    )
    if match is None:
        return None, None
    return match["host"].strip("[]"), int(match["port"]) if match["port"] else None
