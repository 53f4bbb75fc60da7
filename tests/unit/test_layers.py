"""Modules import only downwards, and what costs time or may be missing is imported when it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pysqlbox"

LAYERS = """
    errors paths watching calls
    names cron logs extras signatures wording unreachable
    places rules drivers
    locate arguments retry transaction pool_base
    serializer async_transaction pool async_pool
    messages records typed
    steps
    box schedules joins ledger audit register deployment_base
    outbox inbox http_ledger
    boxes store idempotent
    deployment
    async_deployment
    deploy
    worker
    stores relays
    metrics
    upkeep
    manager
    pysqlbox
    testing dashboard otel
    service
    cli
    __main__
    contrib
"""
"""From the bottom to the top; a module, or a folder of them, imports only from lines above its own."""

LEVEL = {name: level for level, line in enumerate(LAYERS.split("\n")) for name in line.split()}


def _imports(tree: ast.Module) -> Iterator[str]:
    """The package's modules that a module imports when it is imported itself."""
    for node in _at_import(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                yield f"{node.module}.{name.name}"
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def _at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements outside of functions, and not for type checkers only."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _at_import(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.stmt):
                    yield from _at_import([part])
                elif isinstance(part, ast.ExceptHandler):
                    yield from _at_import(part.body)


def _layer(module: str) -> str:
    """The name in the table that a module belongs to."""
    second = module.split(".")[1] if "." in module else "pysqlbox"
    return second if second in LEVEL else "pysqlbox"


def test_every_module_has_a_layer() -> None:
    there = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"} | {
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()
    }
    assert there - set(LEVEL) == set(), "name its layer in LAYERS"
    assert set(LEVEL) - there == {"pysqlbox"}, "LAYERS names what is not there"


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_modules_import_downwards(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    own = _layer(module)
    for imported in _imports(ast.parse(path.read_text())):
        if imported.partition(".")[0] != "pysqlbox":
            continue
        other = _layer(imported)
        assert other == own or LEVEL[other] < LEVEL[own], (
            f"{module} imports {imported}, which is not below it"
        )


def _imported(code: str) -> set[str]:
    """The top packages that a program has imported at its end."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


HEAVY = {
    "asyncpg", "click", "django", "jinja2", "opentelemetry", "psycopg", "pydantic", "pyodbc", "pytest",
    "sqlalchemy", "starlette", "uvicorn", "yoyo",
}  # fmt: skip


def test_importing_the_package_imports_no_driver_and_no_tool() -> None:
    """The command line's click, the deployment's yoyo and jinja2, and whatever an extra brings."""
    assert _imported("import pysqlbox") & HEAVY == set()


@pytest.mark.parametrize("connect", ["connect", "connect_async"])
def test_a_driver_is_imported_for_its_own_urls(connect: str) -> None:
    for_postgres = _imported(f"import pysqlbox; pysqlbox.{connect}('postgresql://127.0.0.1/nowhere')")
    assert for_postgres & HEAVY == {"psycopg"}
    for_mssql = _imported(f"import pysqlbox; pysqlbox.{connect}('mssql://127.0.0.1/nowhere?driver=x')")
    assert for_mssql & HEAVY <= {"pyodbc"}, "pyodbc itself is imported with the first connection"
