"""The servers of the fault tests, how long their load runs, and the table of figures at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from tests.faults import servers
from tests.faults.figures import Figures, table

_FIGURES = pytest.StashKey[list[Figures]]()


def pytest_configure(config: pytest.Config) -> None:
    """Begins the table, and registers the mark."""
    config.addinivalue_line("markers", "every_version: runs on every version in the short form too")
    config.stash[_FIGURES] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that asks for `known` on every version, or in the short form on the oldest one."""
    if "known" in metafunc.fixturenames:
        # The embedded server's package brings a 16 too, which is there to be upgraded.
        found = [name for name in servers.programs() if name != "pg16"] or ["none"]
        if not servers.SECONDS and metafunc.definition.get_closest_marker("every_version") is None:
            found = found[:1]
        metafunc.parametrize("known", found, indirect=True, scope="session")


@pytest.fixture(scope="session")
def known(request: pytest.FixtureRequest) -> Iterator[servers.Programs]:
    """The programs of one version, where the servers' user can run them."""
    if request.param == "none":
        pytest.skip("no PostgreSQL here whose server programs can be started apart")
    if not Path("/proc/self/stat").exists():
        pytest.skip("the processes of a server are found in /proc, which is not here")
    with servers.reachable(servers.programs()[request.param]) as found:
        yield found


@pytest.fixture(scope="session")
def template(known: servers.Programs) -> Iterator[Path]:
    """The files of a deployed server of that version."""
    with servers.temporary_folder() as folder:
        yield servers.make_template(known, folder)


@pytest.fixture
def running(known: servers.Programs, template: Path) -> Iterator[servers.Server]:
    """A deployed server, running."""
    with servers.server(known, template) as made:
        made.start()
        yield made


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[[Figures], None]:
    """Enters a test's figures into the table, and fails where they are not what they must be."""

    def enter(figures: Figures) -> None:
        request.config.stash[_FIGURES].append(figures)
        figures.check()

    return enter


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """The table, as docs/reliability.md has it."""
    figures = terminalreporter.config.stash[_FIGURES]
    if figures:
        terminalreporter.section("faults")
        for line in table(figures):
            terminalreporter.write_line(line)
