"""Who may do what: four roles, and the least one that a route asks for."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Role", "role_of"]


class Role(StrEnum):
    """A token's role. Only an operator is also a producer and a viewer, and an admin everything."""

    PRODUCER = "producer"
    """Sends messages and uses the ledger's routes; sees nothing else."""
    VIEWER = "viewer"
    """Sees everything but payloads, headers and the audit log; changes nothing."""
    OPERATOR = "operator"
    """Sees everything but the audit log, and acts: replays, cancels, pauses, schedules."""
    ADMIN = "admin"
    """Also configures boxes and reads the audit log."""

    def may(self, least: Role) -> bool:
        """Whether this role suffices where ``least`` is asked for."""
        return least in _INCLUDES[self]


_INCLUDES = {
    Role.PRODUCER: {Role.PRODUCER},
    Role.VIEWER: {Role.VIEWER},
    Role.OPERATOR: {Role.PRODUCER, Role.VIEWER, Role.OPERATOR},
    Role.ADMIN: set(Role),
}


def role_of(text: str) -> Role | None:
    """The role of a name, None if there is none of that name."""
    try:
        return Role(text)
    except ValueError:
        return None
