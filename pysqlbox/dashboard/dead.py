"""Dead letters by cause."""

from __future__ import annotations

from starlette.responses import Response

from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.people import VIEWER

__all__ = ["ENTRIES"]


def causes(ask: Ask) -> Response:
    """What died of what, in one box: one fault is one row."""
    boxes = ask.watch.boxes()
    box = ask.db.box(ask.query("box") or boxes[0].name)
    rows = ask.watch.shared.get(("causes", box.name), 5, lambda: box.dead_causes(limit=200))
    older = rows[-1] if rows and rows[-1].sample_id is None else None
    return ask.page(
        "dead.html", title=f"Dead letters of {box.name}", boxes=boxes, box=box,
        rows=[each for each in rows if each.sample_id is not None], older=older,
    )  # fmt: skip


ENTRIES = (("GET", "/dead", VIEWER, causes),)
