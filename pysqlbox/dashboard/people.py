"""Who looks at the dashboard, and what they may do there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["ADMIN", "NOBODY", "OPERATOR", "VIEWER", "Caller", "Person"]

VIEWER, OPERATOR, ADMIN = "viewer", "operator", "admin"
#: What a page asks for that anybody may see: the login.
NOBODY = ""

_RANK = {VIEWER: 1, OPERATOR: 2, ADMIN: 3}


class Caller(Protocol):
    """Whose token it is, as the service's tokens tell it; the role is text of one of the four roles."""

    @property
    def name(self) -> str:
        """The name that the audit log keeps."""

    @property
    def role(self) -> str:
        """producer, viewer, operator or admin."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who has logged in. A producer's token opens nothing here."""

    name: str
    role: str

    def may(self, least: str) -> bool:
        """Whether the role suffices where ``least`` is asked for."""
        return _RANK.get(self.role, 0) >= _RANK[least]
