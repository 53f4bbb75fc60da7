"""Renders the T-SQL templates line by line, has the engine check them and names the template's own lines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pysqlbox.deploy.render import render_units
from tools.tsql_gate.setup import GateUnavailableError, ensure

REPOSITORY = Path(__file__).resolve().parents[2]
COLLATIONS = ("SQL_Latin1_General_CP1_CI_AS", "Latin1_General_BIN2")
"""The usual one, and one under which an identifier in the wrong case does not bind."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """One template rendered for the schema or for one box."""

    template: str
    box: str | None
    text: str
    lines: tuple[int, ...] = ()
    """The template's line of each line of the text."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One complaint about one line of a template, however many boxes it was rendered for."""

    template: str
    line: int
    column: int
    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.template}:{self.line}:{self.column}: {self.check}: {self.message}"


def check_tree(sql_root: Path, schema: str = "infra") -> list[Problem]:
    """Every problem of the templates below `sql_root`/mssql, rendered for the default boxes."""
    units = render_units("mssql", schema=schema, roles=True, preserve_lines=True, root=sql_root)
    renderings = [
        Rendering(
            f"{sql_root.name}/mssql/{unit.path}", unit.box.name if unit.box else None, unit.text, unit.lines
        )
        for unit in units
    ]
    return check(renderings, schema)


def check(renderings: Sequence[Rendering], schema: str) -> list[Problem]:
    """Every problem of these files, which stand in deployment order."""
    _, environment = ensure()
    labels = [f"{rendering.template}|{rendering.box or ''}" for rendering in renderings]
    sources = [(label, rendering.text) for label, rendering in zip(labels, renderings, strict=True)]
    request = json.dumps({"schema": schema, "collations": COLLATIONS, "sources": sources})
    done = subprocess.run(
        [sys.executable, "-m", "tools.tsql_gate.engine"],
        input=request,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise GateUnavailableError(f"the engine did not run: {done.stderr.strip() or done.returncode}")
    boxes = {rendering.box for rendering in renderings if rendering.box}
    lines = {label: rendering.lines for label, rendering in zip(labels, renderings, strict=True)}
    return sorted(_deduplicated(json.loads(done.stdout), boxes, lines))


def _deduplicated(
    findings: Iterable[dict[str, object]], boxes: Iterable[str], lines: Mapping[str, Sequence[int]]
) -> Iterable[Problem]:
    """One problem per line and message: other boxes and collations mostly say the same again."""
    any_box = re.compile("|".join(sorted(map(re.escape, boxes), key=len, reverse=True)) or "(?!)")
    seen: set[tuple[str, int, str, str]] = set()
    for finding in findings:
        template = str(finding["label"]).partition("|")[0]
        line, column = int(str(finding["line"])), int(str(finding["column"]))
        numbers = lines[str(finding["label"])]
        line = numbers[line - 1] if 1 <= line <= len(numbers) else line
        message = " ".join(str(finding["message"]).split())
        check_name, _, collation = str(finding["check"]).partition(", ")
        complaint = (template, line, check_name, any_box.sub("<box>", message))
        if complaint in seen:
            continue
        seen.add(complaint)
        name = f"{check_name} ({collation})" if collation == COLLATIONS[1] else check_name
        yield Problem(template, line, column, name, message)
