"""Planted bugs: a routine without one of its guards, in place of the real one for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pysqlbox.deploy.render import FOLDERS, Renderer
from pysqlbox.names import NamedBox, merge_boxes
from pysqlbox.paths import sql_root
from tests.support.boxes import BOXES
from tests.support.database import Database


@dataclass(frozen=True, slots=True)
class Bug:
    """A guard taken out: a routine's file, and what stands in place of what, there or in a macro it uses."""

    name: str
    file: str
    changes: Sequence[tuple[str, str]]
    box: str = "outbox"
    macro: str = ""

    def planted_text(self, text: str) -> str:
        """The file without its guard; each text to replace must be there, or the bug is out of date."""
        for old, new in self.changes:
            assert old in text, f"{self.name}: {self.macro or self.file} has no more: {old}"
            text = text.replace(old, new)
        return text


@contextlib.contextmanager
def planted(db: Database, bug: Bug, folder: Path) -> Iterator[None]:
    """The deployed schema with the bug in one box's routine, and the real routine again at the end."""
    changed = bug.macro or bug.file
    for file in {bug.file, changed}:
        text = (sql_root() / db.dialect / file).read_text(encoding="utf-8")
        path = folder / db.dialect / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(bug.planted_text(text) if file == changed else text, encoding="utf-8")
    _apply(db, folder, bug)
    try:
        yield
    finally:
        _apply(db, sql_root(), bug)


def _apply(db: Database, root: Path, bug: Bug) -> None:
    boxes = merge_boxes(BOXES)
    (box,) = (each for each in boxes if each.name == bug.box)
    of_schema = FOLDERS[bug.file.rpartition("/")[0]] == "schema"
    renderer = Renderer(db.dialect, schema=db.schema, boxes=boxes, root=root, test_clock=True)
    with db.session() as session:
        for batch in renderer.unit(bug.file, None if of_schema else NamedBox(box.name, box.kind)).batches:
            session.sql(batch.replace("CREATE OR ALTER ", "ALTER "))  # Babelfish knows them apart only
        session.commit()
