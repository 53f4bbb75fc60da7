"""Ways of holding a transaction in one's own hands under asyncio, and running a test there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import pysqlbox
from pysqlbox import AsyncDeployment
from tests.support.database import Database

Work = Callable[[AsyncDeployment], Coroutine[Any, Any, None]]
End = Callable[[], Awaitable[Any]]
Holder = Callable[[Database], AbstractAsyncContextManager[tuple[Any, End, End]]]
"""Opens a transaction: yields what to hand over as ``connection=``, how to commit it and how to undo it."""


def run(db: Database, work: Work, **options: Any) -> None:
    """Does some work on the asynchronous face of a test's schema, on an event loop of its own."""

    async def main() -> None:
        async with pysqlbox.connect_async(
            db.url, schema=db.schema, **{"pool_size": 3, **options}
        ) as deployment:
            await work(deployment)

    asyncio.run(main())


def dsn(db: Database) -> str:
    """What libpq connects to."""
    from pysqlbox.drivers import parse_url

    return parse_url(db.url).dsn


@contextlib.asynccontextmanager
async def psycopg_connection(db: Database) -> AsyncIterator[Any]:
    """psycopg's own."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(dsn(db)) as connection:
        yield connection, connection.commit, connection.rollback
        await connection.rollback()


async def open_asyncpg(db: Database) -> Any:
    """A connection of asyncpg's."""
    import asyncpg
    from psycopg.conninfo import conninfo_to_dict

    known = conninfo_to_dict(dsn(db))
    return await asyncpg.connect(
        host=known["host"],
        port=known.get("port"),
        user=known.get("user"),
        password=known.get("password"),
        database=known.get("dbname"),
    )


@contextlib.asynccontextmanager
async def asyncpg_connection(db: Database) -> AsyncIterator[Any]:
    """asyncpg's own, with a transaction begun as its users do."""
    connection = await open_asyncpg(db)
    begun: list[Any] = []

    async def begin() -> None:
        begun.append(connection.transaction())
        await begun[-1].start()

    async def commit() -> None:
        await begun.pop().commit()
        await begin()

    async def rollback() -> None:
        await begun.pop().rollback()
        await begin()

    await begin()
    try:
        yield connection, commit, rollback
    finally:
        await connection.close()


def engine(db: Database, driver: str) -> Any:
    """SQLAlchemy's engine on psycopg or asyncpg, which keeps no connections."""
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    async def open_psycopg() -> Any:
        import psycopg

        return await psycopg.AsyncConnection.connect(dsn(db))

    async def open_other() -> Any:
        return await open_asyncpg(db)

    creator = open_psycopg if driver == "psycopg" else open_other
    return create_async_engine(f"postgresql+{driver}://", async_creator=creator, poolclass=NullPool)


def sqlalchemy_connection(driver: str) -> Holder:
    """SQLAlchemy's AsyncConnection."""

    @contextlib.asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Any]:
        async with engine(db, driver).connect() as connection:
            yield connection, connection.commit, connection.rollback

    return opened


def sqlalchemy_session(driver: str) -> Holder:
    """SQLAlchemy's AsyncSession."""

    @contextlib.asynccontextmanager
    async def opened(db: Database) -> AsyncIterator[Any]:
        from sqlalchemy.ext.asyncio import AsyncSession

        async with AsyncSession(engine(db, driver)) as session:
            yield session, session.commit, session.rollback

    return opened


@contextlib.asynccontextmanager
async def sqlalchemy_scoped(db: Database) -> AsyncIterator[Any]:
    """SQLAlchemy's async_scoped_session."""
    from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker

    scoped = async_scoped_session(async_sessionmaker(engine(db, "psycopg")), scopefunc=asyncio.current_task)
    try:
        yield scoped, scoped.commit, scoped.rollback
    finally:
        await scoped.remove()


HOLDERS: dict[str, Holder] = {
    "psycopg": psycopg_connection,
    "asyncpg": asyncpg_connection,
    "sqlalchemy connection on psycopg": sqlalchemy_connection("psycopg"),
    "sqlalchemy connection on asyncpg": sqlalchemy_connection("asyncpg"),
    "sqlalchemy session on psycopg": sqlalchemy_session("psycopg"),
    "sqlalchemy session on asyncpg": sqlalchemy_session("asyncpg"),
    "sqlalchemy scoped session": sqlalchemy_scoped,
}
