"""What doctor() finds in PostgreSQL itself: sessions, slots, tables, indexes, rights."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import psycopg
import pytest

from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import parse_url
from tests.contract.support import OWNER, Box, Row
from tests.contract.test_doctor import COLUMNS, doctor, found
from tests.support.database import Database, Session, execute_once
from tests.support.engines import Engine

pytestmark = pytest.mark.dialect("postgres")


def sessions(db: Database, after_seconds: int = 0) -> list[Row]:
    """What is found of sessions, those that began just now too."""
    rows = db.call("_doctor_sessions", after_seconds=after_seconds)
    assert all(list(row) == COLUMNS for row in rows)
    return [row for row in rows if row["level"] != "ok"]


def pid_of(session: Session) -> int:
    """The session's process."""
    return int(str(session.sql("SELECT pg_backend_pid() AS pid")[0]["pid"]))


def of(rows: list[Row], subject: str) -> dict[str, Row]:
    """The rows of a subject by check."""
    return {row["check"]: row for row in rows if row["subject"] == subject}


def test_doctor_names_the_session_that_holds_an_old_snapshot(db: Database) -> None:
    with db.session() as holder:
        holder.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pid = pid_of(holder)
        row = of(sessions(db), f"session {pid}")["horizon"]
        assert row["level"] == "warning"
        assert "idle in transaction" in row["detail"]
        assert of(sessions(db, 60), f"session {pid}") == {}, "a minute has not passed"
        assert "horizon" in {each["check"] for each in doctor(db)}
        db.sql(str(row["advice"]))
        with pytest.raises(psycopg.OperationalError):
            holder.connection.execute("SELECT 1")
    assert of(sessions(db), f"session {pid}") == {}


def test_doctor_names_who_writes_and_does_not_end_and_is_idle(db: Database) -> None:
    with db.session() as writer, db.session() as reader:
        writer.call("outbox_enqueue", topic="t", payload="secret")
        reader.sql("SELECT 1")
        rows = sessions(db)
        wrote, read = of(rows, f"session {pid_of(writer)}"), of(rows, f"session {pid_of(reader)}")
    assert wrote.keys() == {"horizon", "writing_transactions", "idle_in_transaction"}
    assert read.keys() == {"idle_in_transaction"}, "READ COMMITTED keeps no snapshot between statements"
    assert "idle_in_transaction_session_timeout" in read["idle_in_transaction"]["advice"]
    assert not any("secret" in str(row) for row in rows)


def test_doctor_names_a_prepared_transaction_by_its_gid(db: Database) -> None:
    gid = f"it's {secrets.token_hex(4)}"
    quoted = gid.replace("'", "''")
    with db.session() as session:
        session.sql("CREATE TABLE {schema}.doctor_prepared (n integer)")
        session.connection.execute(f"PREPARE TRANSACTION '{quoted}'".encode())
    try:
        row = of(sessions(db), f"prepared transaction {gid}")["horizon"]
        assert row["level"] == "warning"
        db.sql(str(row["advice"]).partition(";")[0])
        assert of(sessions(db), f"prepared transaction {gid}") == {}
    finally:
        if db.sql("SELECT 1 AS one FROM pg_prepared_xacts WHERE gid = %s", gid):
            db.sql(f"ROLLBACK PREPARED '{quoted}'")


def test_doctor_names_a_replication_slot_that_nobody_uses(db: Database) -> None:
    slot = f"doctor_{secrets.token_hex(4)}"
    db.sql("SELECT pg_create_physical_replication_slot(%s, true)", slot)
    try:
        row = of(sessions(db), f"replication slot {slot}")["horizon"]
        assert row["level"] == "warning"
        assert "nobody uses it" in row["detail"]
        assert "of WAL" in row["detail"]
    finally:
        db.sql("SELECT pg_drop_replication_slot(%s)", slot)
    assert of(sessions(db), f"replication slot {slot}") == {}
    assert slot in row["advice"]


def test_doctor_sees_autovacuum_off(db: Database) -> None:
    (row,) = found(db, "autovacuum", "server")
    assert "autovacuum is off" in row["detail"], "the servers of these tests have it off"
    with db.session() as session:
        # Dead rows that earlier tests have left are as good as vacuumed.
        session.sql("SELECT pg_stat_reset()")
        assert found(session, "autovacuum", "table ") == []
        session.sql("ALTER TABLE {schema}.mail_lease SET (autovacuum_enabled = false)")
        (row,) = found(session, "autovacuum", "table ")
        assert (row["level"], row["subject"]) == ("error", "table mail_lease")
        session.sql(str(row["advice"]))
        assert found(session, "autovacuum", "table ") == []


def test_doctor_sees_dead_rows_that_are_not_vacuumed(db: Database) -> None:
    db.sql("VACUUM {schema}.outbox_tally")
    db.sql(
        "INSERT INTO {schema}.outbox_tally (no, topic, done)"
        " SELECT -n, 't', 0 FROM generate_series(1, 110000) AS n"
    )
    db.sql("DELETE FROM {schema}.outbox_tally")
    db.sql("SELECT pg_stat_force_next_flush()")
    rows = found(db, "autovacuum", "table outbox_tally")
    db.sql("VACUUM {schema}.outbox_tally")
    (row,) = rows
    assert row["level"] == "warning"
    assert re.search(r"about 1100\d\d dead rows", str(row["detail"]))
    assert "VACUUM (VERBOSE, ANALYZE) infra.outbox_tally" in row["advice"]


def test_doctor_sees_a_bloated_table_and_its_indexes(db: Database) -> None:
    db.sql(
        "INSERT INTO {schema}.outbox_tally (no, topic, done)"
        " SELECT -n, 't', 0 FROM generate_series(1, 20000) AS n"
    )
    db.sql("DELETE FROM {schema}.outbox_tally WHERE no % 100 <> 0")
    db.sql("VACUUM (ANALYZE, INDEX_CLEANUP on) {schema}.outbox_tally")
    try:
        rows = db.call("_doctor_tables", least_pages=20)
        subjects = {row["subject"]: row for row in rows if row["check"] == "bloat"}
        assert subjects.keys() == {"table outbox_tally", "index pk_outbox_tally"}
        assert "REINDEX INDEX CONCURRENTLY" in str(subjects["index pk_outbox_tally"]["advice"])
        for row in subjects.values():
            db.sql(str(row["advice"]).partition(";")[0])
        assert [
            row["level"] for row in db.call("_doctor_tables", least_pages=20) if row["check"] == "bloat"
        ] == ["ok"]
    finally:
        db.sql("TRUNCATE {schema}.outbox_tally")


def test_doctor_sees_a_sequence_near_its_end(db: Database) -> None:
    with db.session() as session:
        session.sql("ALTER SEQUENCE {schema}._mail_ids MAXVALUE 1000000")
        session.sql("SELECT setval('{schema}._mail_ids', 850000)")
        (row,) = found(session, "sequences")
        assert (row["level"], row["subject"]) == ("warning", "sequence _mail_ids")
        assert "85.0 %" in row["detail"]
        session.sql("SELECT setval('{schema}._mail_ids', 990000)")
        (row,) = found(session, "sequences")
        assert row["level"] == "error"
        session.sql(str(row["advice"]))
        assert found(session, "sequences") == []
        # A hash in place of a number; any is as good as another.
        session.sql("SELECT setval('{schema}._mail_home', 9223372036854775000)")
        assert found(session, "sequences") == []


INDEXES = """
    SELECT c.relname AS name, pg_get_indexdef(i.indexrelid) AS definition, n.conname AS constraint_name,
        i.indrelid::regclass::text AS table_name
    FROM pg_index AS i
    INNER JOIN pg_class AS c ON c.oid = i.indexrelid
    LEFT JOIN pg_constraint AS n ON n.conindid = i.indexrelid
    WHERE c.relnamespace = '{schema}'::regnamespace AND c.relname NOT LIKE '\\_yoyo%'
    ORDER BY c.relname
"""


def test_doctor_misses_every_index_and_its_advice_brings_it_back(db: Database) -> None:
    """Each index of the deployment, dropped in turn; what is made anew is what was there."""
    before = db.sql(INDEXES)
    assert len(before) > 80
    assert found(db, "indexes") == []
    with db.session() as session:
        for index in before:
            if index["constraint_name"]:
                session.sql(f"ALTER TABLE {index['table_name']} DROP CONSTRAINT {index['name']}")
            else:
                session.sql(f"DROP INDEX {{schema}}.{index['name']}")
        rows = found(session, "indexes")
        assert {str(row["subject"]) for row in rows} == {f"index {index['name']}" for index in before}
        assert {row["level"] for row in rows} == {"error"}
        for row in rows:
            session.sql(str(row["advice"]).replace("CONCURRENTLY ", ""))
        assert session.sql(INDEXES) == before
        assert found(session, "indexes") == []


def test_doctor_names_an_invalid_index(db: Database) -> None:
    db.sql("INSERT INTO {schema}.mail_lane (lane) VALUES (1), (1)")
    with pytest.raises(Exception, match="could not create unique index"):
        db.sql("CREATE UNIQUE INDEX CONCURRENTLY ix_broken ON {schema}.mail_lane (lane)")
    try:
        (row,) = found(db, "indexes")
        assert (row["level"], row["subject"]) == ("error", "index ix_broken")
        db.sql("DELETE FROM {schema}.mail_lane")
        db.sql(str(row["advice"]))
        assert found(db, "indexes") == []
    finally:
        db.sql("DROP INDEX {schema}.ix_broken")


def test_doctor_sees_workers_without_a_listener(box: Box) -> None:
    assert found(box.db, "listeners") == []
    box.put()
    box.take()
    (row,) = found(box.db, "listeners")
    assert (row["level"], row["subject"]) == ("note", f"box {box.name}")
    with box.db.session() as listener:
        listener.sql(f'LISTEN "infra.{box.name}"')
        listener.commit()
        listener.connection.autocommit = True
        listener.sql(f'LISTEN "infra.{box.name}"')
        assert found(box.db, "listeners") == []
    box.call("configure", name="notify", value="off")
    assert found(box.db, "listeners") == []


def test_doctor_misses_no_listener_of_a_worker_that_has_gone(box: Box) -> None:
    """What was done a moment ago tells that somebody was here; not that somebody ought to listen now."""
    box.put()
    box.ack(OWNER, box.take())
    assert found(box.db, "listeners") == []


def test_doctor_says_nothing_of_listeners_that_it_may_not_see(engine: Engine, empty_url: str) -> None:
    """The schema's owner may not look at the sessions of its workers: that is unknown, and no finding."""
    role, password = f"owner_{secrets.token_hex(4)}", secrets.token_hex(8)
    engine.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    name = execute_once(empty_url, "SELECT current_database() AS name")[0]["name"]
    execute_once(empty_url, f"GRANT CREATE ON DATABASE {name} TO {role}")
    url = psycopg.conninfo.make_conninfo(parse_url(empty_url).dsn, user=role, password=password)
    try:
        migrate(url, schema="mine")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT * FROM mine.outbox_enqueue('t', 'p')")
            connection.execute("SELECT * FROM mine.outbox_claim(gen_random_uuid(), 60, 1)")
            rows = connection.execute("SELECT * FROM mine.doctor()").fetchall()
        assert [row[1] for row in rows if row[0] == "listeners" and row[1] != "ok"] == ["unknown"]
    finally:
        execute_once(empty_url, f"DROP OWNED BY {role} CASCADE")
        engine.execute(f"DROP ROLE {role}")


def test_doctor_counts_connections_against_a_databases_limit(db: Database) -> None:
    name = str(db.sql("SELECT current_database() AS name")[0]["name"])
    db.sql(f"ALTER DATABASE {name} CONNECTION LIMIT 1")
    try:
        (row,) = found(db, "connections")
        assert row["subject"] == f"database {name}"
        assert row["level"] == "error"
        db.sql(str(row["advice"]))
        with db.session() as other:
            other.sql("SELECT 1")
            assert [each["level"] for each in found(db, "connections")] == ["error"]
    finally:
        db.sql(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
    assert found(db, "connections") == []


def test_doctor_works_in_a_read_only_transaction(db: Database) -> None:
    with db.session() as session:
        session.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
        levels = {row["check"]: row["level"] for row in doctor(session)}
    assert "unknown" not in levels.values()
    assert levels["drift"] == "ok"


def test_doctor_waits_for_nobody(db: Database) -> None:
    """A table that somebody has locked is one that nothing is known of; the rest is looked at."""
    with db.session() as holder:
        holder.sql("LOCK TABLE {schema}.mail_lease, {schema}.mail_paused")
        rows = doctor(db)
    assert {row["level"] for row in rows if row["subject"].startswith("box mail")} == {"unknown"}
    assert {row["level"] for row in rows if row["subject"] == "box outbox"} == {"ok"}


@pytest.fixture
def stranger(engine: Engine, db: Database) -> Iterator[str]:
    """A role that may use the schema and nothing in it; its URL."""
    role, password = f"stranger_{secrets.token_hex(4)}", secrets.token_hex(8)
    engine.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    db.sql(f"GRANT USAGE ON SCHEMA {{schema}} TO {role}")
    try:
        yield psycopg.conninfo.make_conninfo(parse_url(db.url).dsn, user=role, password=password)
    finally:
        db.sql(f"DROP OWNED BY {role}")
        engine.execute(f"DROP ROLE {role}")


def test_doctor_knows_nothing_without_rights_and_raises_nothing(stranger: str) -> None:
    with psycopg.connect(stranger, autocommit=True) as connection:
        rows = connection.execute(b"SELECT * FROM infra.doctor()").fetchall()
        levels: dict[str, set[str]] = {}
        for check, level, *_ in rows:
            levels.setdefault(check, set()).add(level)
        assert levels["horizon"] == {"unknown"}
        assert levels["idle_in_transaction"] == {"unknown"}
        assert levels["drift"] == {"unknown"}
        assert levels["doctor"] == {"unknown"}, "the boxes"
        assert levels["standby"] == {"ok"}
        assert all(advice for _, level, _, _, advice in rows if level == "unknown")


def test_doctor_as_viewer_and_operator_and_not_as_worker(engine: Engine, empty_url: str) -> None:
    schema = f"r{secrets.token_hex(4)}"
    migrate(empty_url, schema=schema, roles=True)
    names = ("producer", "worker", "operator", "viewer")
    try:
        with psycopg.connect(parse_url(empty_url).dsn) as connection:
            connection.execute(f"SET ROLE {schema}_viewer".encode())
            assert connection.execute(f"SELECT * FROM {schema}.doctor()".encode()).fetchall()
            connection.execute(f"SET ROLE {schema}_operator".encode())
            rows = connection.execute(f"SELECT * FROM {schema}.doctor()".encode()).fetchall()
            assert {row[1] for row in rows if row[2].startswith("box ")} == {"ok"}
            roles = [row[1:3] for row in rows if row[0] == "roles"]
            assert roles == [("ok", f"schema {schema}")]
            connection.execute(f"SET ROLE {schema}_worker".encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {schema}.doctor()".encode())
    finally:
        for name in names:
            execute_once(empty_url, f"DROP OWNED BY {schema}_{name}")
            engine.execute(f"DROP ROLE {schema}_{name}")


def test_doctor_sees_roles_that_lack_or_have_too_much(engine: Engine, empty_url: str) -> None:
    schema = f"r{secrets.token_hex(4)}"
    migrate(empty_url, schema=schema, roles=True)
    names = ("producer", "worker", "operator", "viewer")
    try:
        with psycopg.connect(parse_url(empty_url).dsn) as connection:
            run = connection.execute

            def roles() -> list[tuple[str, ...]]:
                rows = run(f"SELECT * FROM {schema}.doctor() AS d".encode()).fetchall()
                return [row[1:] for row in rows if row[0] == "roles" and row[1] != "ok"]

            assert roles() == []
            run(f"GRANT EXECUTE ON FUNCTION {schema}.outbox_reap(integer) TO PUBLIC".encode())
            run(f"REVOKE EXECUTE ON FUNCTION {schema}.inbox_reap(integer) FROM {schema}_operator".encode())
            run(f"ALTER FUNCTION {schema}.outbox_stats() SET search_path = public".encode())
            rows = {row[1]: row for row in roles()}
            assert rows.keys() == {
                "PUBLIC", f"role {schema}_operator", f"routine {schema}.outbox_stats()"
            }  # fmt: skip
            assert "outbox_reap" in rows["PUBLIC"][2]
            assert "inbox_reap" in rows[f"role {schema}_operator"][2]
            for row in rows.values():
                run(row[3].encode())
            assert roles() == []
            run(f"ALTER ROLE {schema}_worker RENAME TO {schema}_gone".encode())
            (row,) = roles()
            assert row[:2] == ("error", f"role {schema}_worker")
            connection.rollback()
    finally:
        for name in names:
            execute_once(empty_url, f"DROP OWNED BY {schema}_{name}")
            engine.execute(f"DROP ROLE {schema}_{name}")


def test_doctor_reads_little_of_much(db: Database) -> None:
    """Of 200,000 waiting, leased, done and dead rows a few pages are read: neither counted nor scanned."""
    many = "generate_series(1, 200000) AS n"
    db.sql(
        "INSERT INTO {schema}.outbox_message (id, message_id, created_at, attempt, priority, topic, payload)"
        f" SELECT n, gen_random_uuid(), now(), 0, 0, 't', 'p' FROM {many}"
    )
    places = {
        "ready": ("lane, ticket, id, topic", "0, n, n, 't'"),
        "scheduled": ("due_at, no, id, lane, topic", "now() + interval '1 day', n, n, 0, 't'"),
        "lease": ("id, owner_token, locked_until, topic", f"n, '{OWNER}', now() + interval '1 hour', 't'"),
        "done": ("id, processed_at, span", "n, now(), 1"),
        "dead": ("id, died_at, expired, cancelled, topic", "n, now(), false, false, 't'"),
        "group_member": ("group_id, id", "'g' || n % 1000, n"),
        "dedup": ("dedup_key, id, message_id, seen_at", "'k' || n, n, gen_random_uuid(), now()"),
    }
    for place, (names, values) in places.items():
        db.sql(f"INSERT INTO {{schema}}.outbox_{place} ({names}) SELECT {values} FROM {many}")
        db.sql(f"ANALYZE {{schema}}.outbox_{place}")
    db.sql("ANALYZE {schema}.outbox_message")
    with db.session() as session:
        session.call("doctor")  # fills the catalog's caches
        before = _blocks(session)
        rows = session.call("doctor")
        after = _blocks(session)
    assert {row["check"] for row in rows if row["level"] == "unknown"} == set()
    assert [
        row["level"] for row in rows if row["check"] == "dead_letters" and row["subject"] == "box outbox"
    ] == ["warning"]
    read = {name: after[name] - before[name] for name in after if after[name] > before[name]}
    assert read, "nothing was read: this shows nothing"
    assert sum(read.values()) < 15_000, read
    tables = {f"outbox_{place}" for place in ("ready", "scheduled", "lease", "done", "dedup", "dead")}
    assert all(read.get(table, 0) < 1_100 for table in tables), read
    assert read["outbox_group_member"] < 12_000, "a thousand members, and the first two of their groups"


def _blocks(session: Session) -> dict[str, int]:
    """How many pages of each table of the schema, with its indexes, this session has asked for."""
    query = (
        "SELECT c.relname AS name, pg_stat_get_xact_blocks_fetched(c.oid) + coalesce((SELECT sum("
        "pg_stat_get_xact_blocks_fetched(i.indexrelid)) FROM pg_index AS i WHERE i.indrelid = c.oid), 0)"
        " AS blocks"
        " FROM pg_class AS c WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'"
    )
    return {str(row["name"]): int(str(row["blocks"])) for row in session.sql(query)}
