"""Dead letters of one cause, all of them: counted, replayed or discarded a bounded part at a time."""

from __future__ import annotations

from dataclasses import dataclass

from pysqlbox.deployment import Deployment
from pysqlbox.errors import InvalidState
from pysqlbox.service import actions

__all__ = ["LOOKED_AT", "Part", "act", "count"]

LOOKED_AT = 4000
"""Dead letters that are looked at for one step."""
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Part:
    """How many there were, and behind which id the next part begins; None at the end."""

    affected: int
    next: int | None


def count(db: Deployment, box: str, cause: str, topic: str | None, after_id: int) -> Part:
    """How many of the next dead letters have the cause."""
    ids, following = _look(db, box, cause, topic, after_id, LOOKED_AT)
    return Part(len(ids), following)


def act(
    db: Deployment, actor: str, action: str, box: str, cause: str, topic: str | None, after_id: int, most: int
) -> Part:
    """Replay or discard those among the next ones that have the cause, ``most`` of them at most."""
    change = actions.replay if action == "replay" else actions.discard
    tried = 0
    while True:
        tried += 1
        ids, following = _look(db, box, cause, topic, after_id, most)
        if not ids:
            return Part(0, following)
        try:
            return Part(change(db, actor, box, ids, cause=cause, topic=topic), following)
        except InvalidState:  # somebody else brings them back at the same time
            if tried == _TRIES:
                raise


def _look(
    db: Deployment, box: str, cause: str, topic: str | None, after_id: int, most: int
) -> tuple[list[int], int | None]:
    """The ids of one look, and where the next one begins."""
    letters = db.box(box).dead_letter_causes(limit=LOOKED_AT, after_id=after_id, topic=topic)
    ids = [letter.id for letter in letters if letter.cause == cause]
    if len(ids) > most:
        return ids[:most], ids[most - 1]
    return ids, letters[-1].id if len(letters) == LOOKED_AT else None
