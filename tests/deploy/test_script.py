"""`pysqlbox render`: the script deploys, repeats without effect, and agrees with `migrate`."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.deploy.render import split_batches
from pysqlbox.deploy.script import render_script
from pysqlbox.drivers import Target, connect, parse_url
from pysqlbox.drivers.mssql import database_error, map_error, query, run_batch
from pysqlbox.errors import PysqlboxError
from pysqlbox.names import NamedBox
from tests.deploy.catalog import catalog
from tests.deploy.release import Release
from tests.deploy.test_migrate import change_by_hand
from tests.support.database import execute_once

ORDERS = NamedBox("orders", "inbox")
_ON_ERROR = ":on error exit\n"
_PSQL = shutil.which("psql") or max(map(str, Path("/usr/lib/postgresql").glob("*/bin/psql")), default=None)


def run(url: str, script: str) -> None:
    """Runs a script as psql would, with psql, or as sqlcmd would."""
    target = parse_url(url)
    if target.dialect == "postgres":
        if _PSQL is None:
            pytest.skip("psql is not installed")
        done = subprocess.run(
            [_PSQL, "-X", "-q", "-d", url], input=script, capture_output=True, text=True, check=False
        )
        assert done.stdout == ""
        if done.returncode:
            raise PysqlboxError(done.stderr)
        return
    connection = connect(_patient(url), autocommit=True)
    try:
        for batch in split_batches("mssql", script.replace(_ON_ERROR, "")):
            run_batch(connection, batch)
    except database_error() as error:
        raise map_error(error, target) from error
    finally:
        connection.close()


def run_on(url: str, batches: Sequence[str], first: str = "", *, ends: bool = True) -> list[str]:
    """Runs batches as a client that goes on after errors; answers the errors.

    ``ends``: whether the last batch is there to end the transaction; otherwise closing the connection does.
    """
    errors = []
    with contextlib.closing(connect(_patient(url), autocommit=True)) as connection:
        if first:
            run_batch(connection, first)
        for batch in batches:
            try:
                run_batch(connection, batch)
            except database_error() as error:
                errors.append(str(map_error(error)))
        if first:
            assert query(connection, "SELECT @@TRANCOUNT AS n")[0][0] == 1
            run_batch(connection, "COMMIT TRANSACTION")
        if ends:
            assert query(connection, "SELECT @@TRANCOUNT AS n")[0][0] == 0
    return errors


def _patient(url: str) -> Target:
    """The target without a timeout: sqlcmd has none either."""
    return replace(parse_url(url), query_timeout=0)


def script_of(url: str, release: Release, **options: object) -> str:
    """The script of a small release."""
    return render_script(
        parse_url(url).dialect,
        root=release.root,
        migrations=release.migrations,
        **options,  # type: ignore[arg-type]  # passed through
    )


def test_release_script_is_idempotent(empty_url: str) -> None:
    """The release's script, twice: the same catalog as `migrate` makes, which finds nothing to do."""
    script = render_script(parse_url(empty_url).dialect, boxes=[ORDERS])
    run(empty_url, script)
    before = catalog(empty_url, "infra")
    run(empty_url, script)
    assert catalog(empty_url, "infra") == before
    found = status(empty_url)
    assert not found.changes
    assert not found.drifted
    migrate(empty_url, schema="by_migrate", boxes=[ORDERS])
    ours = [row for row in catalog(empty_url, "by_migrate") if not row[1].startswith("_yoyo")]
    assert [row for row in before if not row[1].startswith("_yoyo")] == ours


@pytest.mark.parametrize("schema", ['my-app "x"', "select", "it's [odd ;--"])
def test_any_schema_name(empty_url: str, release: Release, schema: str) -> None:
    """The script quotes as `migrate` does."""
    run(empty_url, script_of(empty_url, release, schema=schema))
    assert not release.status(empty_url, schema=schema).changes


def test_script_upgrades(empty_url: str, release: Release) -> None:
    """A newer script takes over from an older `migrate`, and the other way round."""
    release.routine("other", "n", "count(*)")
    release.migrate(empty_url)
    release.remove("queue/other.sql")
    release.second_version()
    release.routine("total", "sum", "sum(extra)", parameter="since")
    run(empty_url, script_of(empty_url, release))
    assert not release.status(empty_url).changes
    release.routine("total", "sum", "sum(id)", parameter="since")
    assert len(release.migrate(empty_url).routines) == 2
    change_by_hand_and_mend(empty_url, release)


def change_by_hand_and_mend(url: str, release: Release) -> None:
    """The script finds a routine that was changed by hand."""
    release.routine("total", "n", "count(*)")
    release.migrate(url)
    change_by_hand(url)
    assert release.status(url).drifted == ["queue/total@outbox"]
    run(url, script_of(url, release))
    assert not release.status(url).changes


def test_script_refuses(empty_url: str, release: Release) -> None:
    """A box it does not know, or a newer schema: it changes nothing."""
    script = script_of(empty_url, release)
    release.migrate(empty_url, boxes=[ORDERS])
    with pytest.raises(PysqlboxError, match="has a box that this script lacks"):
        run(empty_url, script)
    script = script_of(empty_url, release, boxes=[ORDERS])
    release.second_version()
    release.migrate(empty_url)
    before = catalog(empty_url, "infra")
    with pytest.raises(PysqlboxError, match="newer than version 1"):
        run(empty_url, script)
    assert catalog(empty_url, "infra") == before


def _fails_at_its_end(batch: str) -> str:
    """The batch, with an error behind everything that it does."""
    end = next(end for end in ("UPDATE #pysqlbox_script", "COMMIT TRANSACTION", "END TRY") if end in batch)
    before, _, behind = batch.rpartition(end)
    return f"{before}DECLARE @zero int = 0; SET @zero = 1 / @zero;\n{end}{behind}"


STUMBLES: dict[str, Callable[[str], str]] = {
    "fails": _fails_at_its_end,
    "throws": lambda _: "THROW 51000, N'refused', 1;",
    "does not compile": lambda _: "THIS IS NO STATEMENT",
    "does not reach the server": lambda _: "",
}


@pytest.mark.dialect("mssql")
@pytest.mark.parametrize("stumble", STUMBLES)
def test_a_client_that_goes_on_after_an_error(empty_url: str, release: Release, stumble: str) -> None:
    """Management Studio, say: whichever batch fails, and however, nothing is applied by half."""
    batches = split_batches("mssql", script_of(empty_url, release))
    assert batches[0].endswith(_ON_ERROR)
    start = next(number for number, batch in enumerate(batches) if "BEGIN TRANSACTION" in batch)
    assert start == 2
    for number in (start, start + 1, len(batches) // 2, len(batches) - 1):
        stumbling = [*batches[:number], STUMBLES[stumble](batches[number]), *batches[number + 1 :]]
        assert stumbling != list(batches)
        is_last = number == len(batches) - 1
        errors = run_on(empty_url, stumbling, ends=not is_last)
        if not is_last:
            assert errors[-1].startswith("nothing was deployed, the first error says why")
        assert execute_once(empty_url, "SELECT SCHEMA_ID(N'infra') AS id") == [{"id": None}]
    (error,) = run_on(empty_url, batches)  # `:on error exit`, which such a client does not know
    assert "deployed" not in error
    assert not release.status(empty_url).changes


@pytest.mark.dialect("mssql")
def test_a_failed_upgrade_leaves_what_was(empty_url: str, release: Release) -> None:
    """The same on a deployed schema: it stays at its version, with its routines."""
    run(empty_url, script_of(empty_url, release))
    before = catalog(empty_url, "infra")
    release.second_version()
    release.routine("total", "sum", "sum(id)")
    batches = split_batches("mssql", script_of(empty_url, release))
    for number, stumble in (
        (3, "fails"),
        (len(batches) - 2, "does not compile"),
        (len(batches) - 1, "fails"),
    ):
        run_on(empty_url, [*batches[:number], STUMBLES[stumble](batches[number]), *batches[number + 1 :]])
        assert catalog(empty_url, "infra") == before
    run(empty_url, script_of(empty_url, release))
    assert not release.status(empty_url).changes


@pytest.mark.dialect("mssql")
def test_an_open_transaction_is_left_alone(empty_url: str, release: Release) -> None:
    """The script neither joins nor ends what somebody has begun in that session."""
    execute_once(empty_url, "CREATE TABLE dbo.mine (n int)")
    batches = split_batches("mssql", script_of(empty_url, release).replace(_ON_ERROR, ""))
    errors = run_on(empty_url, batches, first="BEGIN TRANSACTION; INSERT INTO dbo.mine VALUES (1);")
    assert errors[0].startswith("a transaction is open: commit it or roll it back first")
    assert execute_once(empty_url, "SELECT SCHEMA_ID(N'infra') AS id") == [{"id": None}]
    assert execute_once(empty_url, "SELECT n FROM dbo.mine") == [{"n": 1}]


def test_sqlcmd_ends_at_the_first_error() -> None:
    """Its command stands in a batch of its own, so that who does not know it loses nothing else."""
    batches = split_batches("mssql", render_script("mssql"))
    (line,) = [line for line in batches[0].splitlines() if not line.startswith("--")]
    assert f"{line}\n" == _ON_ERROR
    assert not any(_ON_ERROR in batch for batch in batches[1:])


def test_every_batch_is_guarded() -> None:
    """All between the first and the last ask for the transaction, in the whole release."""
    batches = split_batches("mssql", render_script("mssql", roles=True))
    assert len(batches) > 100
    guard = "IF @@TRANCOUNT > 0 AND OBJECT_ID(N'tempdb..#pysqlbox_script') IS NOT NULL\nBEGIN TRY\n"
    for number, batch in enumerate(batches[3:], 1):
        assert batch.startswith(
            f"{guard}IF NOT EXISTS (SELECT 1 FROM #pysqlbox_script WHERE step = {number})"
        )
    for batch in batches[3:-1]:
        assert batch.endswith("ROLLBACK TRANSACTION;\nTHROW;\nEND CATCH;\n")
    assert "COMMIT TRANSACTION" in batches[-1]


def test_the_script_asks_for_a_fit_database() -> None:
    """As migrate does, unless it is told not to."""
    refusal = "READ_COMMITTED_SNAPSHOT is off: run ALTER DATABASE"
    assert refusal in render_script("mssql")
    assert refusal not in render_script("mssql", allow_unfit_database=True)
    assert "compatibility_level < 150" in render_script("mssql")


def test_the_catalog_is_compared_in_one_collation() -> None:
    """The catalog has the database's collation, our columns their own: the server refuses to choose."""
    script = render_script("mssql", roles=True)
    compared = re.findall(r"o\.name (.*?)= u\.object_name", script)
    assert len(compared) >= 2
    assert set(compared) == {"COLLATE Latin1_General_BIN2 "}
