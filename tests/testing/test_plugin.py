"""The pytest plugin, as an application's tests use it: runs of pytest in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pysqlbox
from pysqlbox.drivers import connect, parse_url
from tests.support.database import execute_once
from tests.support.engines import Engine
from tests.support.local_postgres import embedded_installed

pytest_plugins = ["pytester"]

#: What an application's tests might look like. They depend on their order only if the plugin fails them.
TESTS = """
import time
from datetime import timedelta

import pytest
from pysqlbox import testing
from pysqlbox.errors import InvalidArgument


def test_one_of_two_that_enqueue_the_same(pysqlbox_deployment):
    db = pysqlbox_deployment
    assert testing.enqueued(db.outbox) == []
    assert db.outbox.enqueue("mail", {"to": "ann"}, dedup_key="mail").outcome == "created"
    db.inbox.enqueue("paid", "stripe", "evt_1", {"amount": 5})
    db.outbox.configure("max_attempts", 3)
    db.outbox.pause("mail")
    db.ledger.try_begin("key")
    db.joins.start("tenant", 2)
    db.schedules.set("daily", "mail", "", cron="0 7 * * *")
    testing.clock(db).advance(60)


test_the_other_one = test_one_of_two_that_enqueue_the_same


def test_the_clock_is_right_again_and_settings_are_as_they_were(pysqlbox_deployment):
    assert testing.clock(pysqlbox_deployment).ahead == timedelta(0)
    with pysqlbox_deployment.connection() as raw:
        text = f"SELECT value FROM {pysqlbox_deployment.schema}.outbox_settings WHERE name = 'max_attempts'"
        assert raw.execute(text).fetchone()[0] == "10"
    assert pysqlbox_deployment.schedules.list() == []


def test_a_worker_that_nobody_stops(pysqlbox_deployment):
    worker = pysqlbox_deployment.worker(threads=2)
    worker.handler("mail")(print)
    worker.start()


def test_nobody_else_takes_the_messages(pysqlbox_deployment):
    db = pysqlbox_deployment
    db.outbox.enqueue("mail", {"to": "ann"}, delay=3600)
    testing.clock(db).advance(timedelta(hours=1))
    got = []
    worker = db.worker(threads=2)
    worker.handler("mail")(lambda message: got.append(message.payload))
    assert worker.drain(timeout=60, raise_errors=True) == 1
    assert got == ['{"to":"ann"}']


def test_named_boxes(pysqlbox_deployment):
    assert pysqlbox_deployment.box("orders", kind="inbox").stats()[-1].ready == 0


@pytest.fixture
def emptying(_pysqlbox_deployed):
    def measure():
        began = time.perf_counter()
        _pysqlbox_deployed.fresh()
        return time.perf_counter() - began

    return measure


def test_emptying_takes_milliseconds(pysqlbox_deployment, emptying, record_property):
    times = []
    for _ in range(9):
        pysqlbox_deployment.outbox.enqueue_payloads("mail", ["x"] * 100)
        times.append(emptying())
    record_property("emptying", sorted(times)[4])
    print("emptying took", sorted(times)[4])
"""
#: The examples of docs/testing.md, as one file.
EXAMPLES = "\n\n".join(
    re.findall(
        r"^```python\n(.*?)^```",
        (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
)
INI = """
[pytest]
pysqlbox_boxes = orders:inbox
filterwarnings = error
"""

#: How many tests these are.
COUNT = len(re.findall(r"^(?:def )?test_", TESTS + EXAMPLES, re.MULTILINE))
#: Those that ask for the deployment.
DEPLOYED = COUNT - 3


@pytest.fixture
def application(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with an application's tests."""
    for name in list(os.environ):
        if name.startswith(("PYSQLBOX_", "PYTEST_")):
            monkeypatch.delenv(name)
    pytester.makefile(".ini", pytest=INI)
    pytester.makepyfile(test_application=TESTS, test_examples=EXAMPLES)
    return pytester


def _milliseconds(result: pytest.RunResult) -> float:
    (line,) = [line for line in result.outlines if "emptying took" in line]
    return float(line.split()[-1]) * 1000


def test_on_a_private_server(application: pytest.Pytester) -> None:
    """Without a word about where: an embedded one, which is gone afterwards."""
    if not embedded_installed():
        pytest.skip("the extra pysqlbox[embedded] is not installed")
    result = application.runpytest_subprocess("-rP", "-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=COUNT)
    assert _milliseconds(result) < 100


def test_on_a_server_of_ones_own(
    application: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, engine: Engine, empty_url: str
) -> None:
    """PYSQLBOX_TEST_URL names a database; what is in it stays, and no schema is left behind."""
    monkeypatch.setenv("PYSQLBOX_TEST_URL", empty_url)
    execute_once(empty_url, "CREATE TABLE orders (id int)")
    result = application.runpytest_subprocess("-rP", "-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=COUNT)
    assert _milliseconds(result) < (100 if engine.dialect == "postgres" else 2000)
    assert execute_once(empty_url, "SELECT count(*) AS n FROM orders")[0]["n"] == 0
    catalog = "pg_namespace" if engine.dialect == "postgres" else "sys.schemas"
    column = "nspname" if engine.dialect == "postgres" else "name"
    left = execute_once(empty_url, f"SELECT {column} AS name FROM {catalog} WHERE {column} LIKE 'pysqlbox%'")
    assert left == []


def test_a_deployment_that_is_no_test_s_is_not_emptied(
    application: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, engine: Engine, empty_url: str
) -> None:
    """A schema by the name that the tests want, but without a clock that can be moved."""
    allow = not engine.is_versioned
    with pysqlbox.connect(empty_url, schema="shop") as db:
        db.migrate(allow_unfit_database=allow)
        db.outbox.enqueue("mail", "keep me")
        monkeypatch.setenv("PYSQLBOX_TEST_URL", empty_url)
        application.makefile(".ini", pytest=f"{INI}pysqlbox_schema = shop\n")
        result = application.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist")
        result.assert_outcomes(errors=DEPLOYED, passed=3)
        result.stdout.fnmatch_lines(["*schema 'shop'*was not deployed for tests, which would empty it*"])
        assert db.outbox.stats()[-1].ready == 1


@pytest.mark.dialect("postgres")
def test_two_runs_at_once_do_not_share_a_schema(
    application: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, empty_url: str
) -> None:
    """The second one says so."""
    from pysqlbox.deploy.store import lock_key

    monkeypatch.setenv("PYSQLBOX_TEST_URL", empty_url)
    first = connect(empty_url, autocommit=True)
    first.execute("SELECT pg_advisory_lock(%s::bigint)", [lock_key("test pysqlbox_test")])
    result = application.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(errors=DEPLOYED, passed=3)
    result.stdout.fnmatch_lines(["*other tests use it now; set pysqlbox_schema*"])
    first.close()
    assert parse_url(empty_url).dialect == "postgres"


def test_without_the_fixture_nothing_is_imported(tmp_path: Path) -> None:
    """The plugin is there in every run of pytest, and costs none of them anything."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\ndef test_it(request):\n"
        "    assert request.config.pluginmanager.has_plugin('pysqlbox')\n"
        "    assert not [name for name in sys.modules if name.partition('.')[0] == 'pysqlbox']\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
