"""One deployment of one schema: what is there, what the release has, and the steps between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pysqlbox.deploy.declarations import PINNED_PATH, unpinned_definers
from pysqlbox.deploy.render import Renderer, Unit
from pysqlbox.deploy.store import NotReplaceable, Record, Store
from pysqlbox.errors import InvalidState, SchemaMismatch
from pysqlbox.names import NamedBox, check_box_names, check_role_names, merge_boxes
from pysqlbox.paths import migrations_root

_PLACE_TABLE = "tables/schema/place"
_MIGRATION = re.compile(r"(\d{4})\..+\.py")


@dataclass(slots=True)
class Plan:
    """What a deployment would do, or has done."""

    version: int
    target: int
    schema: bool = False
    boxes: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    routines: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    #: Routines whose definition in the database is not what was deployed, among them such as are gone.
    drifted: list[str] = field(default_factory=list)
    #: Table files whose text is not what was deployed: released ones must not be edited.
    edited: list[str] = field(default_factory=list)
    #: What the database's own settings lack, each with the statement that mends it.
    warnings: list[str] = field(default_factory=list)
    #: The number that the schema's ids carry, if it was given one.
    place: int | None = None
    #: Whether it is given that number now.
    numbered: bool = False

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return (
            bool(self.schema or self.boxes or self.tables or self.routines or self.dropped or self.numbered)
            or self.version < self.target
        )

    def lines(self, *, done: bool) -> list[str]:
        """What there is to do, or what was done, a line for each kind of thing."""
        create, apply, drop = ("created", "applied", "dropped") if done else ("create", "apply", "drop")
        found = []
        if self.schema:
            found.append(f"{create} the schema")
        if self.boxes:
            names = ", ".join(self.boxes)
            found.append(f"{'added' if done else 'add'} {_count(self.boxes, 'box', 'boxes')}: {names}")
        if self.numbered:
            found.append(f"{'gave' if done else 'give'} it place {self.place}, for good")
        if self.tables:
            found.append(f"{apply} {_count(self.tables, 'table file', 'table files')}")
        if self.routines:
            found.append(f"{create} {_routines(self.routines)}")
        if self.dropped:
            found.append(f"{drop} {_routines(self.dropped)}")
        return found


def _count(items: list[str], one: str, many: str) -> str:
    return f"{len(items)} {one if len(items) == 1 else many}"


def _routines(items: list[str]) -> str:
    """Their number, and their names as long as they are few."""
    names = f": {', '.join(items)}" if len(items) <= 5 else ""
    return _count(items, "routine or view", "routines and views") + names


class Deployment:
    """Brings a schema to what the release has, inside the store's transaction."""

    def __init__(
        self,
        store: Store,
        *,
        boxes: Iterable[NamedBox] = (),
        roles: bool = False,
        root: Path | None = None,
        migrations: Path | None = None,
        test_clock: bool = False,
        place: int | None = None,
    ) -> None:
        """Read the state; call it with the lock held, unless nothing will be changed."""
        self.store = store
        self.target = latest_version(migrations or migrations_root())
        self._deployed = store.has_state()
        version = store.version() if self._deployed else 0
        if version > self.target:
            raise SchemaMismatch(
                f"schema {store.schema!r} has version {version}, newer than this release knows"
                f" ({self.target}): deploy with the newer release"
            )
        known = store.boxes() if self._deployed else []
        self._known = frozenset(known)
        self.boxes = merge_boxes(known, boxes)
        check_box_names(store.dialect, store.schema, self.boxes)
        self._records = {record.id: record for record in store.records()} if self._deployed else {}
        roles = roles or any(name.startswith("roles/") for name in self._records)
        if roles:
            check_role_names(store.dialect, store.schema)
        renderer = Renderer(
            store.dialect, schema=store.schema, boxes=self.boxes, root=root, test_clock=test_clock
        )
        units = list(renderer.units(roles=roles))
        renderer.check_names()
        if store.dialect == "postgres":
            _refuse_unpinned(units, roles=roles)
        self._tables = [unit for unit in units if unit.kind == "versioned" and unit.version <= self.target]
        self._routines = [unit for unit in units if unit.kind == "repeatable"]
        self._positions = {unit.id: position for position, unit in enumerate(units)}
        self._cleared = False
        self.plan = Plan(version, self.target, schema=not store.schema_exists())
        self.plan.boxes = [str(box) for box in self.boxes if box not in known]
        self._fill_place(place)
        self._fill_plan()

    def _fill_place(self, place: int | None) -> None:
        """A place is given once: ids that tell where they are from have been handed out."""
        known = self.store.place() if _PLACE_TABLE in self._records else None
        if place is not None and known is not None and place != known:
            raise InvalidState(
                f"schema {self.store.schema!r} has place {known}, for good; it cannot become place {place}:"
                " leave the place out"
            )
        self.plan.place = place if known is None else known
        self.plan.numbered = known is None and place is not None

    def _fill_plan(self) -> None:
        plan = self.plan
        objects = self.store.objects() if self._deployed else {}
        plan.tables = [unit.id for unit in self._pending_tables()]
        plan.edited = [
            unit.id for unit in self._tables if self._text_changed(unit) and unit.id in self._records
        ]
        plan.drifted = [
            record.id
            for record in self._records.values()
            if record.catalog_hash is not None
            and objects.get(record.object_name or "") != record.catalog_hash
        ]
        drifted = set(plan.drifted)
        changed = [unit for unit in self._routines if self._text_changed(unit) or unit.id in drifted]
        if self._changes_tables(self._pending_tables()):
            changed = self._routines
        elif changed:  # roles grant on what is there, so they follow every change
            ids = {unit.id for unit in changed}
            changed = [unit for unit in self._routines if unit.id in ids or unit.folder == "roles"]
        plan.routines = [unit.id for unit in changed]
        self._refuse_strangers(changed)
        shipped = {unit.id for unit in (*self._tables, *self._routines)}
        plan.dropped = [
            record.id
            for record in self._records.values()
            if record.id not in shipped and _is_routine(record.id)
        ]

    def apply_tables(self, version: int | None = None) -> None:
        """Create or change tables up to a version, for every box that lacks them."""
        limit = self.target if version is None else version
        if self.plan.schema and not self.store.schema_exists():
            self.store.create_schema()
        pending = [unit for unit in self._pending_tables() if unit.version <= limit]
        if self._changes_tables(pending) and not self._cleared:
            self.store.clear_for_tables(self._object_names())
            self._cleared = True
        self.store.run(pending)
        if pending:
            records = [self._record(unit) for unit in pending]
            self.store.save(records)
            self._records |= {record.id: record for record in records}
        self.store.add_boxes(self.boxes)
        for each in range(1, limit + 1):
            self.store.add_version(each)

    def apply_routines(self) -> None:
        """Create every routine and view anew that has to be, and drop those no longer shipped."""
        if not self.plan.routines and not self.plan.dropped:
            return
        wanted = set(self.plan.routines)
        gone = [self._records[name] for name in self.plan.dropped]
        changed = [unit for unit in self._routines if unit.id in wanted]
        roles = [unit for unit in changed if unit.folder == "roles"]
        made = [unit for unit in changed if unit.folder != "roles"]
        old = [*gone, *(self._records[unit.id] for unit in made if unit.id in self._records)]
        try:
            objects = self.store.create(made, [name for record in old for name in record.names])
        except NotReplaceable:
            self.store.clear(self._object_names())
            made = [unit for unit in self._routines if unit.folder != "roles"]
            objects = self.store.create(made, [])
        self.store.forget(record.id for record in gone)
        records = [self._record(unit, objects.get(unit.id, ())) for unit in (*made, *roles)]
        self.store.finish(records, roles)

    def apply_place(self) -> None:
        """Number the schema, and the boxes that were added to one that has its number."""
        if self.plan.place is not None:
            self.store.set_place(self.plan.place)

    def _refuse_strangers(self, changed: Sequence[Unit]) -> None:
        """Nothing that somebody else made in the schema is ever replaced."""
        if self.plan.schema or not changed:
            return
        found = self.store.strangers(
            [unit for unit in changed if has_object(unit)], set(self._object_names())
        )
        if found:
            raise InvalidState(
                f"schema {self.store.schema!r} has objects that pysqlbox would create and did not make:"
                f" {', '.join(found[:5])}{' and more' if len(found) > 5 else ''}; rename or drop them"
            )

    def _changes_tables(self, pending: Sequence[Unit]) -> bool:
        """Whether tables that are in use change; those of a box that is just being added are not."""
        return any(unit.version > 1 and (unit.box is None or unit.box in self._known) for unit in pending)

    def _pending_tables(self) -> list[Unit]:
        return [unit for unit in self._tables if unit.id not in self._records]

    def _object_names(self) -> list[str]:
        """The objects of every deployed routine and view, in the order of their creation."""
        return [name for record in self._records.values() for name in record.names]

    def _text_changed(self, unit: Unit) -> bool:
        record = self._records.get(unit.id)
        return record is None or record.text_hash != unit.hash

    def _record(self, unit: Unit, objects: tuple[str, ...] = ()) -> Record:
        name = unit.object_name if has_object(unit) else None
        return Record(unit.id, self._positions[unit.id], name, unit.hash, None, objects)


def has_object(unit: Unit) -> bool:
    """Whether a unit creates a routine or view of its name: tables and roles do not."""
    return unit.kind == "repeatable" and unit.folder != "roles"


def latest_version(migrations: Path) -> int:
    """The highest version among the migrations."""
    found = [int(match[1]) for path in migrations.iterdir() if (match := _MIGRATION.fullmatch(path.name))]
    return max(found, default=0)


def _is_routine(identity: str) -> bool:
    return not identity.startswith("tables/")


def _refuse_unpinned(units: Sequence[Unit], *, roles: bool) -> None:
    """A definer's routine under its caller's search_path would run whatever the caller puts into that."""
    found = unpinned_definers(units, roles=roles)
    if found:
        raise InvalidState(
            f"{', '.join(found[:5])}: would run with the rights of the schema's owner"
            f" and does not SET search_path = {PINNED_PATH}; add that to it"
        )
