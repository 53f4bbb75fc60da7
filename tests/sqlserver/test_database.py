"""What deployment asks of a database's settings, on a real one."""

from __future__ import annotations

import re

import pytest

from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.errors import InvalidState
from tests.contract.support import is_babelfish
from tests.support.database import Database, execute_once

SENTENCES = {
    "READ_COMMITTED_SNAPSHOT OFF WITH ROLLBACK IMMEDIATE": "READ_COMMITTED_SNAPSHOT is off",
    "COMPATIBILITY_LEVEL = 140": "compatibility level 140",
}


@pytest.mark.parametrize("setting", SENTENCES)
def test_an_unfit_database_is_refused_with_the_cure(server: Database, empty_url: str, setting: str) -> None:
    """What the sentence says to run makes the deployment pass."""
    assert not is_babelfish(server)
    execute_once(empty_url, f"ALTER DATABASE CURRENT SET {setting}")
    with pytest.raises(InvalidState, match=SENTENCES[setting]) as caught:
        migrate(empty_url)
    plan = migrate(empty_url, allow_unfit_database=True)
    assert SENTENCES[setting] in plan.warnings[0]
    assert status(empty_url).warnings == plan.warnings
    cure = re.search(r"run: (ALTER DATABASE .*?)(?:;| \(or)", str(caught.value))
    assert cure is not None
    execute_once(empty_url, cure[1])
    assert migrate(empty_url).warnings == []


def test_deployed_procedures_keep_their_settings(server: Database) -> None:
    """Filtered indexes need both at every write, and a procedure remembers them from its creation."""
    query = (
        "SELECT o.name AS name FROM sys.sql_modules AS m INNER JOIN sys.objects AS o"
        " ON o.object_id = m.object_id WHERE o.schema_id = SCHEMA_ID(%s)"
        " AND (m.uses_ansi_nulls = 0 OR m.uses_quoted_identifier = 0)"
    )
    assert server.sql(query, server.schema) == []
