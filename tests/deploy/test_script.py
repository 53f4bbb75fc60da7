"""`pysqlbox render`: the script deploys, repeats without effect, and agrees with `migrate`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.deploy.names import Box
from pysqlbox.deploy.render import split_batches
from pysqlbox.deploy.script import render_script
from pysqlbox.drivers import connect, parse_url
from pysqlbox.drivers.mssql import database_error, map_error, run_batch
from pysqlbox.errors import PysqlboxError
from tests.deploy.catalog import catalog
from tests.deploy.release import Release
from tests.deploy.test_migrate import change_by_hand

ORDERS = Box("orders", "inbox")
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
    connection = connect(target, autocommit=True)
    try:
        for batch in split_batches("mssql", script.replace(":on error exit\n", "")):
            run_batch(connection, batch)
    except database_error() as error:
        raise map_error(error, target) from error
    finally:
        connection.close()


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
