"""What a type checker makes of programs that use the package: mypy and pyright, both strict."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.name for path in PROGRAMS.glob("*.py"))
#: What pyright has to say that is a matter of taste: the programs define functions that nobody calls.
QUIET = {"reportUnusedFunction": "none", "reportUnusedExpression": "none"}

Complaints = dict[str, dict[int, list[str]]]


@cache
def mypy() -> Complaints:
    """By file and line, what mypy complains of."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    ran = subprocess.run(
        [*command, "--config-file=", "--ignore-missing-imports", "--cache-dir", str(ROOT / ".mypy_cache"),
         *[str(PROGRAMS / name) for name in NAMES]],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode in (0, 1), ran.stderr
    found: Complaints = defaultdict(lambda: defaultdict(list))
    for line in ran.stdout.splitlines():
        match = re.fullmatch(r"(.+?):(\d+): error: (.*)", line)
        if match:
            found[Path(match[1]).name][int(match[2])].append(match[3])
    return found


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> Complaints:
    """By file and line, what pyright complains of in its strict mode."""
    configured = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    configured.write_text(
        json.dumps(
            {
                "include": [str(PROGRAMS)],
                "extraPaths": [str(ROOT)],
                "typeCheckingMode": "strict",
                "pythonVersion": "3.11",
                **QUIET,
            }
        )
    )
    ran = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable,
         "--project", str(configured)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found: Complaints = defaultdict(lambda: defaultdict(list))
    answer = json.loads(ran.stdout)
    assert answer["summary"]["filesAnalyzed"] == len(NAMES)
    for each in answer["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            found[Path(each["file"]).name][line].append(each["message"])
    return found


def wrong(name: str, complaints: Complaints) -> list[str]:
    """Where a checker complains without reason, and where it misses a mistake."""
    lines = (PROGRAMS / name).read_text().splitlines()
    bad = {number for number, line in enumerate(lines, 1) if line.endswith("# bad")}
    seen = {_statement(lines, number): said for number, said in complaints[name].items()}
    told = [f"{name}:{number}: {seen[number][0]}" for number in sorted(seen.keys() - bad)]
    return told + [
        f"{name}:{number}: nothing is said of {lines[number - 1].strip()}"
        for number in sorted(bad - seen.keys())
    ]


def _statement(lines: list[str], number: int) -> int:
    """The line itself; for a function's own line that of its decorator, which is where some point."""
    if lines[number - 1].lstrip().startswith(("def ", "async def ")) and lines[
        number - 2
    ].lstrip().startswith("@"):
        return number - 1
    return number


@pytest.mark.parametrize("name", NAMES)
def test_mypy(name: str) -> None:
    assert wrong(name, mypy()) == []


@pytest.mark.parametrize("name", NAMES)
def test_pyright(name: str, pyright: Complaints) -> None:
    assert wrong(name, pyright) == []


def test_there_are_mistakes_and_good_programs() -> None:
    bad = [name for name in NAMES if "# bad" in (PROGRAMS / name).read_text()]
    assert bad
    assert len(bad) < len(NAMES)
