"""The pytest plugin of the suite: fixtures `engine`, `db` and `empty_url`, and the closing lines of a run.

A test that asks for `engine`, directly or through `db`, runs once on every engine, or with
`@pytest.mark.dialect("mssql")` on those of one dialect. Engines start when first asked for. The closing lines
say which ran and which did not, and why, and repeat the reason of every skipped test.

`--engine sqlserver2022`, which may be repeated, leaves only that engine's tests; what is not here is then
skipped by name, also if it is an image.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator

import pytest
from _pytest.terminal import TerminalReporter

from tests.support.database import Database
from tests.support.deployed import Deployed
from tests.support.engines import Engine, engine_kinds, started

_RAN = "engine"
"""The name under which a test's report carries its engine and that engine's version."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--engine`."""
    parser.addoption(
        "--engine",
        action="append",
        default=[],
        choices=[kind.id for kind in engine_kinds().values()],
        help="only this engine's tests; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line(
        "markers", "dialect(name): runs on the engines of one dialect only, postgres or mssql"
    )
    config.addinivalue_line("markers", "only_engine(id): runs on this engine only")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test once on every engine; a missing one makes a skipped test, unless it is an image."""
    if "engine" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("dialect")
    dialect = mark.args[0] if mark else None
    only = metafunc.definition.get_closest_marker("only_engine")
    named = metafunc.config.getoption("engine")
    ids = [
        kind.id
        for kind in engine_kinds().values()
        if dialect in (None, kind.dialect)
        and (only is None or kind.id == only.args[0])
        and (kind.id in named if named else not (kind.container and kind.missing))
    ]
    metafunc.parametrize("engine", ids, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--engine`, leaves out the tests that need no engine."""
    if not config.getoption("engine"):
        return
    others = [item for item in items if not _has_engine(item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if _has_engine(item)]


def _has_engine(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return isinstance(params.get("engine"), str)  # a test of another dialect has none


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A running engine."""
    kind = engine_kinds()[request.param]
    if kind.missing:
        pytest.skip(f"{kind.id}: {kind.missing}")  # the closing lines name it
    with started(kind) as running:
        yield running


@pytest.fixture(scope="session")
def deployed(engine: Engine) -> Iterator[Deployed]:
    """The test schema, deployed once on the engine."""
    with contextlib.closing(Deployed(engine)) as found:
        yield found


@pytest.fixture
def db(deployed: Deployed) -> Database:
    """The schema as if freshly deployed."""
    return deployed.fresh()


@pytest.fixture
def empty_url(engine: Engine) -> Iterator[str]:
    """The URL of a new, empty database."""
    name = engine.create_database()
    try:
        yield engine.database_url(name)
    finally:
        engine.drop_database(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes in the test's report on which engine it runs, and makes the report one that can be handed on."""
    report = yield
    # A process of several hands its reports on as UTF-8, which has no lone surrogates; some tests log such.
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode("utf-8")) for name, text in report.sections
    ]
    running = getattr(item, "funcargs", {}).get("engine")
    if isinstance(running, Engine):
        report.user_properties.append((_RAN, f"{running.id}\n{running.version}"))
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """The closing lines."""
    ran: Counter[str] = Counter()
    versions: dict[str, str] = {}
    for outcome in ("passed", "failed", "error", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):  # a collection error has none
                if name == _RAN:
                    engine_id, _, versions_text = str(value).partition("\n")
                    ran[engine_id] += 1
                    versions[engine_id] = versions_text
    terminalreporter.section("engines")
    for kind in engine_kinds().values():
        if ran[kind.id]:
            line = f"ran      {kind.id}: {versions[kind.id]}, {ran[kind.id]} tests"
        else:
            line = f"not run  {kind.id}: {kind.missing or 'no test asked for it'}"
        terminalreporter.write_line(line)
    _write_skips(terminalreporter)


def _write_skips(terminalreporter: TerminalReporter) -> None:
    reasons: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if not reasons:
        return
    terminalreporter.section("skipped, and why")
    for reason, names in sorted(reasons.items()):
        terminalreporter.write_line(f"{len(names):4}  {reason}")
        shown = names[:3] if not terminalreporter.verbosity > 0 else names
        for name in shown:
            terminalreporter.write_line(f"        {name}")
        if len(shown) < len(names):
            terminalreporter.write_line(f"        and {len(names) - len(shown)} more (-v names them)")
