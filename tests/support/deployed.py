"""One deployment per engine and session, put back to its first state for every test."""

from __future__ import annotations

from pysqlbox.deploy.migrate import migrate
from tests.support.boxes import BOXES, SCHEMA
from tests.support.database import Database
from tests.support.emptying import Emptier
from tests.support.engines import Engine


class Deployed:
    """The test schema on one engine."""

    def __init__(self, engine: Engine) -> None:
        """Deploys it into a new database."""
        self._engine = engine
        self._name = engine.create_database(is_versioned=engine.is_versioned)
        self._database = Database(engine.dialect, SCHEMA, engine.database_url(self._name), engine.id)
        deploy(self._database.url, allow_unfit_database=not engine.is_versioned)
        self._emptier = Emptier(self._database.connection(), engine.dialect, SCHEMA)

    def fresh(self) -> Database:
        """The schema as deployed, for one test alone."""
        self._emptier.restore(self._database.connection())
        self._database.forget()
        return self._database

    def close(self) -> None:
        """Drops the deployed database."""
        self._database.close()
        self._engine.drop_database(self._name)


def deploy(url: str, schema: str = SCHEMA, *, allow_unfit_database: bool = False) -> None:
    """Deploys all boxes of the tests, with a clock that a test can set."""
    migrate(url, schema=schema, boxes=BOXES, test_clock=True, allow_unfit_database=allow_unfit_database)
