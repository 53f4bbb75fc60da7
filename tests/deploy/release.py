"""Small releases: a directory with sql/ and migrations/ that a test can change as a later release would."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.deploy.plan import Plan
from pysqlbox.names import DIALECTS, Dialect
from pysqlbox.paths import migrations_root, sql_root

_ITEM = {
    "postgres": "CREATE TABLE {{ box.item }}"
    " (id bigint NOT NULL CONSTRAINT {{ key.pk_item }} PRIMARY KEY, note text);\n",
    "mssql": "CREATE TABLE {{ box.item }} (id bigint NOT NULL CONSTRAINT {{ key.pk_item }} PRIMARY KEY,"
    " note nvarchar(50));\n",
}
_ADD = {
    "postgres": "ALTER TABLE {{ box.item }} ADD COLUMN extra integer;\n",
    "mssql": "ALTER TABLE {{ box.item }} ADD extra int;\n",
}


class Release:
    """A release that has one table, one view and one routine a box."""

    def __init__(self, directory: Path) -> None:
        """Copies what every release has: the deployment's own tables, the version, the first migration."""
        self.root = directory / "sql"
        self.migrations = directory / "migrations"
        for dialect in DIALECTS:
            shutil.copytree(sql_root() / dialect / "tables/schema", self.root / dialect / "tables/schema")
            (self.root / dialect / "admin").mkdir()
            shutil.copy(sql_root() / dialect / "admin/schema_version.sql", self.root / dialect / "admin")
        self.migrations.mkdir()
        shutil.copy(migrations_root() / "0001.tables.py", self.migrations)
        self.write("tables/queue/item.sql", _ITEM["postgres"], _ITEM["mssql"])
        self.view("id, note")
        self.routine("total", "n", "count(*)")

    def write(self, path: str, postgres: str, mssql: str) -> None:
        """Writes one file of both dialects."""
        texts: dict[Dialect, str] = {"postgres": postgres, "mssql": mssql}
        for dialect, text in texts.items():
            file = self.root / dialect / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def remove(self, path: str) -> None:
        """Removes one file of both dialects."""
        for dialect in DIALECTS:
            (self.root / dialect / path).unlink()

    def view(self, columns: str) -> None:
        """Gives every box the view `items`."""
        text = f"VIEW {{{{ box.items }}}} AS SELECT {columns} FROM {{{{ box.item }}}};\n"
        self.write("views/queue/items.sql", f"CREATE OR REPLACE {text}", f"CREATE OR ALTER {text}")

    def routine(self, name: str, column: str, expression: str, parameter: str = "") -> None:
        """Gives every box a routine that answers one column."""
        taken = f"@{parameter} int = 0" if parameter else ""
        declared = f"{parameter} integer DEFAULT 0" if parameter else ""
        self.write(
            f"queue/{name}.sql",
            f"CREATE OR REPLACE FUNCTION {{{{ box.{name} }}}}({declared}) RETURNS TABLE ({column} bigint)\n"
            f"LANGUAGE sql AS $$SELECT CAST({expression} AS bigint) FROM {{{{ box.items }}}}$$;\n",
            f"-- Counts.\nCREATE OR ALTER PROCEDURE {{{{ box.{name} }}}} {taken}\n"
            f"AS SELECT CAST({expression} AS bigint) AS {column} FROM {{{{ box.items }}}};\n",
        )

    def second_version(self) -> None:
        """Adds a column by a second migration, and shows it."""
        self.write("tables/queue/0002_extra.sql", _ADD["postgres"], _ADD["mssql"])
        first = (self.migrations / "0001.tables.py").read_text()
        (self.migrations / "0002.extra.py").write_text(first.replace("apply_tables(1)", "apply_tables(2)"))
        self.view("extra, id, note")

    def migrate(self, url: str, **options: Any) -> Plan:
        """Deploys this release."""
        return migrate(url, root=self.root, migrations=self.migrations, **options)

    def status(self, url: str, **options: Any) -> Plan:
        """Compares a schema with this release."""
        return status(url, root=self.root, migrations=self.migrations, **options)
