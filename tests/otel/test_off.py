"""Without OpenTelemetry nothing is imported, and with other instrumentation everything goes on as before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor

import pysqlbox
from tests.otel.conftest import MakeWorker
from tests.otel.told import Told, context_of, conventions
from tests.support.database import Database
from tests.worker.support import put

EVERYTHING = """
import sys
import pysqlbox, pysqlbox.cli, pysqlbox.deployment, pysqlbox.metrics, pysqlbox.worker
import pysqlbox.watching, pysqlbox.worker.worker_run, pysqlbox.worker.database_postgres
assert pysqlbox.watching.watcher is None
print([name for name in sys.modules if name.partition(".")[0] == "opentelemetry" or "otel" in name])
"""
MISSING = """
import sys
sys.modules["opentelemetry"] = None
import pysqlbox.otel
try:
    pysqlbox.otel.instrument()
except pysqlbox.DriverMissing as error:
    print(error)
"""


WORKING = """
import sys
sys.modules["opentelemetry"] = None  # whoever imports it fails
import pysqlbox
from pysqlbox import metrics
with pysqlbox.connect(sys.argv[1], schema=sys.argv[2]) as db:
    worker = db.worker(threads=1)
    worker.add_handler("t", lambda message: None)
    db.outbox.enqueue("t", "p")
    worker.drain(timeout=60)
    assert "pysqlbox_up 1" in metrics.text(db)
    print(worker.stats().acked, [name for name in sys.modules if "otel" in name])
"""


def run(*arguments: str) -> str:
    """What a process prints that must succeed."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_of_it_is_imported_unless_asked_for() -> None:
    assert run(sys.executable, "-c", EVERYTHING) == "[]"


def test_whoever_sends_works_and_is_scraped_does_without_it(db: Database) -> None:
    assert run(sys.executable, "-c", WORKING, db.url, db.schema) == "1 []"


def test_a_missing_extra_is_named() -> None:
    assert (
        run(sys.executable, "-c", MISSING) == "OpenTelemetry is not installed: pip install 'pysqlbox[otel]'"
    )


def test_opentelemetry_instrument_finds_it() -> None:
    code = "from pysqlbox import watching; print(type(watching.watcher).__name__)"
    module = "opentelemetry.instrumentation.auto_instrumentation"
    program = f"from {module} import run; run()"
    assert run(sys.executable, "-c", program, sys.executable, "-c", code) == "Telemetry"


def test_the_names_are_the_conventions() -> None:
    from pysqlbox.otel import names

    described = conventions()["metrics"]
    assert {name: (each["instrument"], each["unit"]) for name, each in described.items()} == names.METRICS
    assert set(names.OPERATION_TYPES) <= set(conventions()["operation_types"])
    known = {
        name
        for each in (*conventions()["spans"].values(), *described.values())
        for name in each["attributes"]
    }
    ours = {
        value
        for value in vars(names).values()
        if isinstance(value, str) and value.startswith(("messaging.", "server.", "error."))
    }
    own = {name for name in ours if name.startswith("messaging.pysqlbox.")}
    assert ours - own - set(names.METRICS) <= known
    assert len(own) == 5


def test_metrics_have_only_attributes_of_the_conventions(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make()
    worker.add_handler("t", lambda _message: None)
    put(deployment.outbox)
    worker.drain(timeout=60)
    own = {"messaging.pysqlbox.box", "messaging.pysqlbox.store"}
    seen = 0
    for name, described in conventions()["metrics"].items():
        for attributes, _ in told.points(name):
            assert attributes.keys() - own <= described["attributes"].keys(), name
            seen += 1
    assert seen >= 3


@pytest.fixture
def psycopg_watched(told: Told) -> Iterator[None]:
    """psycopg's own instrumentation, as many applications have it.

    It leaves a `connect` bound to the class itself, so that subclasses connect as that class: the methods are
    put back as they were.
    """
    kinds = (psycopg.Connection, psycopg.AsyncConnection)
    methods = [(kind, vars(kind)["connect"]) for kind in kinds]
    PsycopgInstrumentor().instrument(tracer_provider=told.tracer_provider, skip_dep_check=True)
    yield
    PsycopgInstrumentor().uninstrument()
    for kind, method in methods:
        setattr(kind, "connect", method)  # noqa: B010 - mypy takes an assignment for one of a method


@pytest.mark.dialect("postgres")
@pytest.mark.usefixtures("psycopg_watched")
def test_it_lives_with_the_drivers_instrumentation(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make()

    @worker.handler("t", transactional=True)
    def _(_message: object, context: Any) -> None:
        context.connection.execute("SELECT 'of the handler'")
        deployment.outbox.enqueue("follow-up", "p", connection=context.connection)

    worker.add_handler("follow-up", lambda _message: None)
    put(deployment.outbox)
    assert worker.drain(timeout=60) == 2
    first = told.span("process", messaging__destination__name="t")
    (statement,) = [
        span for span in told.spans() if "of the handler" in str((span.attributes or {}).get("db.statement"))
    ]
    assert statement.parent is not None
    assert statement.parent.span_id == context_of(first).span_id, "it belongs to the handler's span"
