"""Every error's text says what to do next: the rule an argument broke, or the step that helps.

A text that is listed here as a failure lacks it: write "must …", or end it in ": do this" or "; do this".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pysqlbox import errors
from pysqlbox.drivers import advice, postgres
from pysqlbox.drivers.url import parse_url
from pysqlbox.paths import sql_root

PACKAGE = Path(errors.__file__).parent
OURS = {name for name in errors.__all__ if name != "Undecodable"}
STEPS = (
    "add ask attach call check claim decorate deploy end enqueue give import install leave look make name"
    " number open or pass raise register rename run schedule_list set start stop take try use wait write"
)
#: A rule ("must …"), or after a stop of some kind a step in the imperative.
TEACHES = re.compile(
    rf"\bmust\b|\bneeds\b|\bpip install\b|[;:,] (?:{STEPS.replace(' ', '|')})\b|\badds one\b"
)


def _known(node: ast.expr) -> str:
    """What a name of the advice or a call of it stands for; a placeholder for anything else."""
    if isinstance(node, ast.Name):
        return str(getattr(advice, node.id, "{}"))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and hasattr(advice, node.func.id):
        function = getattr(advice, node.func.id)
        return f"{function(None)} / {function(parse_url('postgresql://h/d'))}"
    return "{}"


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _known(node.value)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return _text(node.body)
    return "{}"


def python_sites() -> Iterator[tuple[str, str]]:
    """Where the package makes an error of its own, with the skeleton of its text."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name == "dashboard":  # its errors stand on a page that leads on
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OURS:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno} {node.func.id}", _text(node.args[0])


_POSTGRES = re.compile(r"(?:MESSAGE =|_reject }}\()(.*);")
_MSSQL = re.compile(r"(?:THROW \d+,|arguments\.(?:raise|refuse|reject)\(|SET @refusal =|SET @message =)(.*)")


def sql_sites() -> Iterator[tuple[str, str]]:
    """Where a routine raises, with the literals of its text."""
    for path in sorted(sql_root().rglob("*.sql")):
        dialect = path.relative_to(sql_root()).parts[0]
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            found = _POSTGRES.search(line) if dialect == "postgres" else _MSSQL.search(line)
            if found is None or line.lstrip().startswith(("--", "{#")):
                continue
            literals = re.findall(r"""'([^']*)'|"([^"]*)\"""", found[1])
            words = " ".join(first or second for first, second in literals)
            if " " in words.strip():
                yield f"{path.relative_to(sql_root())}:{number}", words


def test_texts_of_the_package() -> None:
    """Each says the rule or the step; one that only hands another's text on has nothing of its own."""
    sites = [(where, text) for where, text in python_sites() if re.search(r"\w", text.replace("{}", ""))]
    assert len(sites) > 100
    assert [f"{where}: {text}" for where, text in sites if not TEACHES.search(text)] == []


def test_texts_of_the_routines() -> None:
    """The same for both dialects' SQL."""
    sites = list(sql_sites())
    for dialect in ("mssql", "postgres"):
        assert sum(where.startswith(dialect) for where, _ in sites) > 80
    assert [f"{where}: {text}" for where, text in sites if not TEACHES.search(text)] == []


@pytest.mark.parametrize(
    ("error", "target", "kind", "says"),
    [
        (psycopg.errors.InsufficientPrivilege(), None, errors.AccessDenied, "ask the schema's owner"),
        (psycopg.errors.InvalidPassword(), "postgresql://h/d", errors.AccessDenied, "check the user"),
        (psycopg.errors.AdminShutdown(), None, errors.DatabaseUnavailable, "try again"),
        (psycopg.OperationalError("refused"), "postgresql://h/d", errors.DatabaseUnavailable, "check that"),
        (psycopg.errors.UndefinedFunction(), None, errors.SchemaMismatch, "run pysqlbox migrate"),
        (psycopg.errors.DiskFull(), None, errors.PysqlboxError, "the server's log"),
    ],
)
def test_faults_of_the_database(
    error: Exception, target: str | None, kind: type[errors.PysqlboxError], says: str
) -> None:
    """The driver's words come first, then what to do."""
    found = postgres.map_error(error, parse_url(target) if target else None)
    assert type(found) is kind
    assert says in str(found)
