"""What a payload that does not fit its type raises."""

from __future__ import annotations

from pysqlbox.errors import PysqlboxError

__all__ = ["Undecodable"]


class Undecodable(PysqlboxError):
    """A payload does not fit the type its handler takes; the text says where and why, never what it holds."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
