"""`python -m tools.sqlfluff_gate`: sqlfluff over the rendered SQL of both dialects.

Every template is linted once, as the first box of its folder has it. The rules are in .sqlfluff. Bodies of
PL/pgSQL functions are strings to sqlfluff: plpgsql_check and the tests see to those.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from sqlfluff.core import FluffConfig, Linter
from sqlfluff.core.types import ConfigMappingType

from pysqlbox.deploy.render import render_units
from pysqlbox.names import DIALECTS, Dialect

REPOSITORY = Path(__file__).resolve().parents[1]
CONFIG = REPOSITORY / ".sqlfluff"
NAMES = {"postgres": "postgres", "mssql": "tsql"}
"""sqlfluff's names of the dialects."""
FALSE_ALARMS = re.compile(
    # It would write IDENTITY (1, 1) and OPENJSON (…), and takes the TOP of a DELETE for a name.
    r"Expected single whitespace between ('(?:IDENTITY|OPENJSON)' keyword|naked identifier) and start bracket"
    # It reads m.definition LIKE as a reference of its own.
    r"|Unqualified reference '\w+\.'"
)


def lint_tree(sql_root: Path) -> list[str]:
    """Every complaint about the templates below `sql_root`, as `file:line:column: rule: text`."""
    texts = list(_texts(sql_root))
    known = _read_cache()
    digests = [_digest(dialect, text) for dialect, _, text, _ in texts]
    fresh = [index for index, digest in enumerate(digests) if digest not in known]
    with ProcessPoolExecutor(max_workers=min(os.cpu_count() or 1, 4)) as pool:
        jobs = ((texts[index][0], texts[index][2]) for index in fresh)
        for index, found in zip(fresh, pool.map(_lint, jobs, chunksize=4), strict=True):
            known[digests[index]] = found
    _write_cache({digest: known[digest] for digest in digests})
    return [
        f"{sql_root.name}/{dialect}/{path}:{_in_template(complaint, lines)}"
        for (dialect, path, _, lines), digest in zip(texts, digests, strict=True)
        for complaint in known[digest]
    ]


def _in_template(complaint: str, lines: Sequence[int]) -> str:
    """A complaint about a line of the text, told of the template's line."""
    line, _, rest = complaint.partition(":")
    return f"{lines[int(line) - 1]}:{rest}"


def _texts(sql_root: Path) -> Iterator[tuple[Dialect, str, str, tuple[int, ...]]]:
    for dialect in DIALECTS:
        seen: set[str] = set()
        for unit in render_units(dialect, roles=True, preserve_lines=True, root=sql_root):
            if unit.path not in seen:
                seen.add(unit.path)
                yield dialect, unit.path, unit.text, unit.lines


def _lint(job: tuple[Dialect, str]) -> list[str]:
    dialect, text = job
    overrides: ConfigMappingType = {"dialect": NAMES[dialect]}
    if dialect == "mssql":
        overrides["ignore"] = "parsing"  # its T-SQL grammar has gaps: it lints what it can read
    config = FluffConfig.from_path(str(CONFIG), overrides=overrides)
    violations = Linter(config=config).lint_string(text).get_violations()
    return [
        f"{found.line_no}:{found.line_pos}: {found.rule_code()}: {found.desc()}"
        for found in violations
        if not FALSE_ALARMS.match(found.desc())
    ]


def _digest(dialect: Dialect, text: str) -> str:
    """What a result depends on: the text, the rules and sqlfluff's own version."""
    rules = (importlib.metadata.version("sqlfluff"), CONFIG.read_text(), FALSE_ALARMS.pattern)
    return hashlib.sha256(repr((rules, dialect, text)).encode()).hexdigest()


def _cache_file() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pysqlbox" / "sqlfluff.json"


def _read_cache() -> dict[str, list[str]]:
    """Earlier results by digest; a damaged file counts as none."""
    try:
        content: dict[str, list[str]] = json.loads(_cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content


def _write_cache(results: dict[str, list[str]]) -> None:
    path = _cache_file()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(results), encoding="utf-8")
        draft.replace(path)
    except OSError:
        return  # a home that cannot be written to only costs time


def main() -> int:
    """0: clean, 1: complaints."""
    started = time.monotonic()
    complaints = lint_tree(REPOSITORY / "sql")
    for complaint in complaints:
        print(complaint)
    print(f"sqlfluff: {len(complaints)} complaint(s), {time.monotonic() - started:.1f} s")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
