"""The SQL of both dialects follows .sqlfluff."""

from __future__ import annotations

import shutil
from pathlib import Path

from pysqlbox.paths import sql_root
from tools.sqlfluff_gate import lint_tree


def test_the_tree_is_clean() -> None:
    complaints = lint_tree(sql_root())
    assert not complaints, "\n" + "\n".join(complaints)


def test_a_planted_fault_is_found_with_file_and_line(tmp_path: Path) -> None:
    for dialect in ("postgres", "mssql"):
        root = tmp_path / dialect / "sql"
        shutil.copytree(sql_root(), root)
        path = root / dialect / "views" / "schema" / "planted.sql"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SELECT 1 AS one;\nselect 2 AS two;\n")
        complaints = lint_tree(root)
        assert [
            complaint
            for complaint in complaints
            if f"{dialect}/views/schema/planted.sql:2:1: CP01" in complaint
        ]
