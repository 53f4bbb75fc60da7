"""The whole deployment as one idempotent script, for psql or sqlcmd.

It asks and keeps the same records as ``migrate``, so either may follow the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pysqlbox.deploy import script_mssql, script_postgres
from pysqlbox.deploy.plan import latest_version
from pysqlbox.deploy.render import Renderer
from pysqlbox.names import Dialect, NamedBox, check_box_names, check_role_names, merge_boxes
from pysqlbox.paths import migrations_root
from pysqlbox.places import check_place


def render_script(
    dialect: Dialect,
    *,
    schema: str = "infra",
    boxes: Iterable[NamedBox] = (),
    roles: bool = False,
    root: Path | None = None,
    migrations: Path | None = None,
    allow_unfit_database: bool = False,
    place: int | None = None,
) -> str:
    """Write the script; it refuses a schema that has boxes beyond the given ones, or another place."""
    number = check_place(place)
    every = merge_boxes(boxes)
    check_box_names(dialect, schema, every)
    if roles:
        check_role_names(dialect, schema)
    renderer = Renderer(dialect, schema=schema, boxes=every, root=root)
    target = latest_version(migrations or migrations_root())
    units = [
        unit for unit in renderer.units(roles=roles) if unit.kind == "repeatable" or unit.version <= target
    ]
    renderer.check_names()
    if dialect == "postgres":
        return script_postgres.write(schema, every, target, units, place=number)
    return script_mssql.write(
        schema, every, target, units, allow_unfit_database=allow_unfit_database, place=number
    )
