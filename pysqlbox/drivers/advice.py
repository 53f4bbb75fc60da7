"""What to do about a fault of the database's: the end of an error's text."""

from __future__ import annotations

from pysqlbox.drivers.url import Target

__all__ = ["OTHER_PLACE", "ROLL_BACK", "TRY_AGAIN", "UNFORESEEN", "USED_UP", "access_advice", "outage_advice"]

TRY_AGAIN = "try again"
ROLL_BACK = "an earlier error has ended the transaction, which must be rolled back"
UNFORESEEN = "look into the server's log for the rest"
USED_UP = "the ids of this deployment's place are used up"
OTHER_PLACE = "deploy one with another place and send there"


def outage_advice(target: Target | None) -> str:
    """With a target nothing was reached; without one a call was interrupted, which may pass."""
    return TRY_AGAIN if target is None else "check that the server runs there and takes connections"


def access_advice(target: Target | None) -> str:
    """With a target the login was refused, or what it connects to; without one a routine."""
    if target is None:
        return "ask the schema's owner for the role that may (pysqlbox migrate --roles makes them)"
    return "check the user, the password and the database, and what that user may do there"
