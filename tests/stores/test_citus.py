"""A Citus cluster: one deployment on each node, and messages that commit with the rows of their key.

They run where ``PYSQLBOX_TEST_CITUS`` names a coordinator with three workers, in databases of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from pysqlbox import Router, Stores
from pysqlbox.cli import cli
from tests.stores.support import Seen
from tests.support import citus
from tests.support.citus import Cluster, Member
from tests.worker.support import until

pytestmark = pytest.mark.skipif(citus.VARIABLE not in os.environ, reason=citus.MISSING)
ENQUEUE = "infra.outbox_enqueue_by_orders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes with a distributed table, and a fourth server."""
    with citus.cluster(os.environ[citus.VARIABLE]) as found:
        command("migrate", "--citus", "--url", found.coordinator.url)
        with found.coordinator.connect() as connection:
            connection.execute(
                "CREATE TABLE orders (tenant text, id text, PRIMARY KEY (tenant, id));"
                " SELECT create_distributed_table('orders', 'tenant', shard_count => 8)"
            )
        route(found.coordinator)
        yield found


@pytest.fixture(autouse=True)
def empty(cluster: Cluster) -> None:
    """No orders and no messages."""
    for member in cluster.members:
        with member.connect() as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM infra.outbox_messages").fetchall()]
            connection.execute("SELECT infra.outbox_cancel(%s::bigint[], 'over')", [ids])
            connection.execute("SELECT infra.outbox_discard(%s::bigint[])", [ids])
    cluster.coordinator.run("TRUNCATE orders")


def command(*arguments: str, code: int = 0) -> str:
    """Runs a command; what it said."""
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def route(member: Member, table: str = "orders") -> None:
    """Makes the forwarders, as psql would."""
    script = command("render", "--dialect", "postgres", "--citus-routes", table)
    lines = [line for line in script.splitlines() if not line.startswith("\\")]
    member.run("\n".join(lines))


def ask(connection: psycopg.Connection[Any], query: Any, *values: object) -> list[tuple[Any, ...]]:
    """Runs a query; its rows."""
    return connection.execute(query, values).fetchall()


def buy(connection: psycopg.Connection[Any], key: str, number: object) -> int:
    """An order and its message, in the transaction that is open; the message's id."""
    connection.execute("INSERT INTO orders VALUES (%s, %s)", [key, str(number)])
    ((made,),) = ask(connection, f"SELECT id FROM {ENQUEUE}(%s, 'bought', %s)", key, f"{key} {number}")
    return int(made)


def orders(cluster: Cluster) -> set[str]:
    """The orders that are there."""
    with cluster.coordinator.connect() as connection:
        return {f"{key} {number}" for key, number in connection.execute("SELECT * FROM orders").fetchall()}


def messages(member: Member) -> list[str]:
    """The payloads on one node that wait."""
    with member.connect() as connection:
        rows = connection.execute(
            "SELECT payload FROM infra.outbox_messages WHERE status = 'Ready'"
        ).fetchall()
    return [row[0] for row in rows]


def all_messages(cluster: Cluster) -> list[str]:
    """The payloads everywhere, each of which must be where its key's rows are."""
    found = []
    for group, member in enumerate(cluster.members):
        for payload in messages(member):
            assert cluster.group_of(payload.split()[0]) == group
            found.append(payload)
    return found


def test_each_node_has_its_own_deployment_and_doing_it_again_changes_nothing(cluster: Cluster) -> None:
    reports = json.loads(command("migrate", "--citus", "--url", cluster.workers[0].url, "--json"))
    assert reports == [{"key": group, "ok": True, "error": None, "changes": []} for group in (0, 1, 2)]
    for group, member in enumerate(cluster.members):
        assert member.value("SELECT place FROM infra.schema_place()") == group
        assert member.value("SELECT value FROM infra.outbox_settings WHERE name = 'notify'") == "off"
    assert cluster.spare.value("SELECT to_regnamespace('infra')") is None


def test_citus_knows_only_the_forwarders(cluster: Cluster) -> None:
    known = cluster.coordinator.value(
        "SELECT string_agg(o.identity, '; ' ORDER BY o.identity) FROM pg_dist_object AS d"
        " CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS o WHERE o.schema = 'infra'"
    )
    assert known.count("infra.") == 2
    assert "infra.outbox_enqueue_by_orders(" in known
    assert "infra.outbox_enqueue_many_by_orders(" in known
    tables = cluster.coordinator.value(
        "SELECT count(*) FROM pg_dist_partition AS p INNER JOIN pg_class AS c ON c.oid = p.logicalrelid"
        " WHERE c.relnamespace = 'infra'::regnamespace"
    )
    assert tables == 0


@pytest.mark.parametrize("initiator", [0, 1, 2])
def test_a_row_and_its_message_commit_together_from_any_node(cluster: Cluster, initiator: int) -> None:
    """Often enough for the driver to prepare the statements and for plans to become generic."""
    sent = set()
    with cluster.members[initiator].connect(autocommit=False) as connection:
        for number in range(40):
            key = f"tenant-{number}"
            made = buy(connection, key, number)
            assert made >> 40 == cluster.group_of(key)
            if number % 4 == 3:
                connection.rollback()
            else:
                connection.commit()
                sent.add(f"{key} {number}")
    assert sorted(all_messages(cluster)) == sorted(sent)
    assert orders(cluster) == sent


@pytest.mark.parametrize("initiator", [0, 1])
def test_arguments_results_and_savepoints_are_those_of_enqueue(cluster: Cluster, initiator: int) -> None:
    (key,) = cluster.keys(2, 1)
    with cluster.members[initiator].connect(autocommit=False) as connection:
        connection.execute("SAVEPOINT before")
        with pytest.raises(psycopg.Error) as refused:
            ask(connection, f"SELECT * FROM {ENQUEUE}(%s, '', 'p')", key)
        assert refused.value.sqlstate == "PB001"
        connection.execute("ROLLBACK TO before")
        for _ in range(2):
            rows = ask(
                connection,
                f"SELECT outcome FROM {ENQUEUE}(key => %s, topic => 't', payload => %s || now()::text,"
                " due_at => now() + interval '1 hour', group_id => 'g', dedup_key => %s)",
                key, f"{key} ", f"once {initiator}",
            )  # fmt: skip
        assert rows == [("duplicate",)]
        records = [{"topic": "t", "payload": f"{key} {number}"} for number in range(3)]
        many = ask(
            connection,
            "SELECT ordinal, outcome FROM infra.outbox_enqueue_many_by_orders(%s, %s)",
            key, json.dumps(records),
        )  # fmt: skip
        assert many == [(1, "created"), (2, "created"), (3, "created")]
        connection.commit()
    assert len(all_messages(cluster)) == 4
    assert cluster.workers[1].value("SELECT count(*) FROM infra.outbox_messages WHERE status = 'Ready'") == 4


LOCAL = {
    "in a CTE": f"WITH made AS (SELECT * FROM {ENQUEUE}(%(key)s, 't', 'p')) SELECT id FROM made",
    "expanded in place": f"SELECT ({ENQUEUE}(%(key)s, 't', 'p')).id",
    "with the key of a row": (
        f"SELECT {ENQUEUE}(tenant, 't', 'p') FROM (SELECT %(key)s AS tenant OFFSET 0) AS t, pg_sleep(0)"
    ),
    "by PERFORM": f"DO $$ BEGIN PERFORM {ENQUEUE}('KEY', 't', 'p'); END $$",
}


@pytest.mark.parametrize("initiator", [0, 1])
@pytest.mark.parametrize("how", LOCAL)
def test_a_call_that_citus_does_not_forward_is_refused(cluster: Cluster, initiator: int, how: str) -> None:
    (key,) = cluster.keys(2, 1)
    statement: Any = LOCAL[how].replace("KEY", key)
    with cluster.members[initiator].connect() as connection:
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(statement, {"key": key} if "%(" in statement else None)
        assert refused.value.sqlstate == "PB003"
    with cluster.workers[1].connect() as connection:
        connection.execute(statement, {"key": key} if "%(" in statement else None)  # there it is in place
    assert [len(messages(member)) for member in cluster.members] == [0, 0, 1]


def test_a_generic_plan_is_refused(cluster: Cluster) -> None:
    (key,) = cluster.keys(2, 1)
    with cluster.coordinator.connect() as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        statement: Any = f"SELECT * FROM {ENQUEUE}(%s, 't', 'p')"
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(statement, [key], prepare=True)
    assert refused.value.sqlstate == "PB003"
    assert [len(messages(member)) for member in cluster.members] == [0, 0, 0]


@pytest.mark.parametrize("initiator", [0, 1, 2])
def test_plpgsql_forwards_from_a_from_clause(cluster: Cluster, initiator: int) -> None:
    (key,) = cluster.keys(2, 1)
    for number in range(8):
        cluster.members[initiator].run(
            f"DO $$ DECLARE made record; k text := '{key}'; BEGIN"
            f" INSERT INTO orders VALUES (k, '{number}');"
            f" SELECT * INTO made FROM {ENQUEUE}(k, 't', k || ' {number}'); END $$"
        )
    assert len(all_messages(cluster)) == len(orders(cluster)) == 8


def test_a_transaction_on_two_nodes_needs_notifications_off(cluster: Cluster) -> None:
    """One that has notified cannot be prepared; migrate --citus turns that off again."""
    (near,), (far,) = cluster.keys(1, 1), cluster.keys(2, 1)
    cluster.workers[0].value("SELECT infra.outbox_configure('notify', 'on')")
    with cluster.coordinator.connect(autocommit=False) as connection:
        buy(connection, near, 1)
        buy(connection, far, 1)
        with pytest.raises(psycopg.Error, match="cannot PREPARE a transaction"):
            connection.commit()
    assert orders(cluster) == set()
    assert "1: turned notifications off: outbox" in command(
        "migrate", "--citus", "--url", cluster.coordinator.url
    )
    with cluster.coordinator.connect(autocommit=False) as connection:
        buy(connection, near, 1)
        buy(connection, far, 1)
        connection.commit()
    assert orders(cluster) == set(all_messages(cluster)) == {f"{near} 1", f"{far} 1"}


def test_a_plain_enqueue_goes_into_the_box_of_the_node_that_was_asked(cluster: Cluster) -> None:
    """Not to its row: that is what the forwarders are for."""
    (key,) = cluster.keys(2, 1)
    with cluster.workers[0].connect(autocommit=False) as connection:
        connection.execute("INSERT INTO orders VALUES (%s, '1')", [key])
        connection.execute("SELECT * FROM infra.outbox_enqueue('t', 'p')")
        connection.commit()
    assert [len(messages(member)) for member in cluster.members] == [0, 1, 0]


def test_one_worker_serves_all_nodes_and_ids_tell_the_node(cluster: Cluster) -> None:
    made = {}
    with Stores.citus(cluster.workers[0].url) as stores:
        worker, seen = stores.worker(threads=2, cleanup_seconds=None), Seen()
        worker.add_handler("bought", seen)
        worker.start()
        try:
            with cluster.coordinator.connect() as connection:
                for number in range(20):
                    with connection.transaction():
                        made[number] = buy(connection, f"tenant-{number}", number)
                until(lambda: len(seen) == 20, 30)
                time.sleep(3)  # until nobody expects any more, nodes are asked less and less often
                before = time.monotonic()
                with connection.transaction():
                    buy(connection, "tenant-0", "late")
                until(lambda: len(seen) == 21, 30)
                assert time.monotonic() - before < 8, "statistics tell of it, although nothing is notified"
        finally:
            worker.stop(5)
        assert set(seen.ids) <= {1, 2}
        for number, identity in made.items():
            group = cluster.group_of(f"tenant-{number}")
            assert Router(stores).of(identity) is stores.get(group)
            assert identity in seen.ids[group]


def test_messages_of_a_group_keep_their_order_whoever_sends_them(cluster: Cluster) -> None:
    (key,) = cluster.keys(1, 1)
    for number in range(30):
        with cluster.members[number % 3].connect() as connection:
            connection.execute(
                f"SELECT * FROM {ENQUEUE}(%s, 'fifo', %s, group_id => %s)",
                [key, f"{key} {number}", key],
            )
    order: list[str] = []
    with Stores.citus(cluster.coordinator.url) as stores:
        worker = stores.worker(threads=4, cleanup_seconds=None)
        worker.add_handler("fifo", lambda message: order.append(message.payload))
        assert worker.drain(60) == 30
    assert order == [f"{key} {number}" for number in range(30)]


# Nodes that end, come and go. They run last, in this order: the cluster is another one afterwards.


def local(member: Member) -> tuple[Any, str]:
    """Where a server has its data, and its programs; a test that may not end it is skipped."""
    folder = member.folder
    if folder is None:
        pytest.skip(f"{citus.VARIABLE}: the servers are not this machine's, or not this user's to end")
    return folder, str(member.value("SELECT setting FROM pg_config WHERE name = 'BINDIR'"))


def test_nothing_is_half_after_a_node_is_killed_in_the_middle_of_commits(cluster: Cluster) -> None:
    victim = cluster.workers[1]
    folder, programs = local(victim)
    stop = threading.Event()
    committed: set[str] = set()
    lock = threading.Lock()

    def write(number: int) -> None:
        """On one node, or every third time on two."""
        connection: psycopg.Connection[Any] | None = None
        turn = 0
        while not stop.is_set():
            turn += 1
            keys = (
                [f"tenant-{turn % 50}", f"tenant-{turn % 47 + 50}"]
                if turn % 3 == 0
                else [f"tenant-{turn % 100}"]
            )
            try:
                if connection is None or connection.closed:
                    connection = cluster.members[number % 3].connect(autocommit=False)
                for key in keys:
                    buy(connection, key, f"{number}-{turn}")
                connection.commit()
                with lock:
                    committed.update(f"{key} {number}-{turn}" for key in keys)
            except psycopg.Error:
                with contextlib.suppress(psycopg.Error):
                    if connection is not None:
                        connection.close()
                connection = None
                time.sleep(0.05)
        if connection is not None:
            connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            reached = len(committed)
            until(lambda reached=reached: len(committed) > reached + 60, 120)  # type: ignore[misc]
            victim.crash(folder)
            reached = len(committed)
            until(lambda reached=reached: len(committed) > reached + 10, 60, "the others go on")  # type: ignore[misc]
            victim.restart(folder, programs)
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    def prepared() -> int:
        """What Citus has not ended yet of transactions on two nodes."""
        for member in cluster.members:
            member.value("SELECT recover_prepared_transactions()")
        query = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
        return sum(int(member.value(query)) for member in cluster.members)

    until(lambda: not prepared(), 60)
    found = all_messages(cluster)
    assert len(found) == len(set(found)), "twice"
    assert set(found) == orders(cluster), "half"
    assert committed <= set(found), "lost"


def test_one_node_is_down_and_the_others_work(cluster: Cluster) -> None:
    victim = cluster.workers[1]
    folder, programs = local(victim)
    (near,), (far,) = cluster.keys(1, 1), cluster.keys(2, 1)
    with Stores.citus(cluster.coordinator.url, refresh_seconds=1) as stores:
        worker, seen = stores.worker(threads=2, poll_seconds=0.2, cleanup_seconds=None), Seen()
        worker.add_handler("bought", seen)
        worker.start()
        try:
            with cluster.coordinator.connect() as connection:
                with connection.transaction():
                    buy(connection, far, 1)
                until(lambda: len(seen.ids[2]) == 1, 30)
                victim.crash(folder)
                for number in range(20):
                    with connection.transaction():
                        buy(connection, near, number)
                until(lambda: len(seen.ids[1]) == 20, 30)
                with pytest.raises(psycopg.Error), connection.transaction():
                    buy(connection, far, 2)
                reports = stores.stats()
                assert [report.ok for report in reports] == [True, True, False]
                victim.restart(folder, programs)
                with connection.transaction():
                    buy(connection, far, 2)
                # The first may come once more: whether its ack was kept nobody knows.
                until(lambda: len(set(seen.ids[2])) == 2, 120)
        finally:
            if not (folder / "postmaster.pid").exists():
                victim.restart(folder, programs)
            worker.stop(5)
    assert orders(cluster) == {f"{near} {number}" for number in range(20)} | {f"{far} 1", f"{far} 2"}


def test_a_new_node_is_deployed_before_it_gets_shards_and_order_survives_a_move(
    cluster: Cluster,
) -> None:
    (key,) = cluster.keys(1, 1)
    spare = cluster.spare
    order: list[str] = []

    def send(member: Member, numbers: range) -> None:
        with member.connect() as connection:
            for number in numbers:
                with connection.transaction():
                    connection.execute("INSERT INTO orders VALUES (%s, %s)", [key, str(number)])
                    query = f"SELECT * FROM {ENQUEUE}(%s, 'fifo', %s, group_id => %s)"
                    ask(connection, query, key, f"{key} {number}", key)

    with Stores.citus(cluster.coordinator.url) as stores:
        worker = stores.worker(threads=4, poll_seconds=0.2, cleanup_seconds=None)
        worker.add_handler("fifo", lambda message: order.append(message.payload))
        send(cluster.workers[0], range(5))
        assert stores.keys() == [0, 1, 2]
        cluster.add(spare)
        cluster.workers.append(spare)
        assert stores.refresh().added == [3]

        # Too early: its rows are on a node that has no box. The transaction fails as a whole.
        cluster.move(key, spare)
        with pytest.raises(psycopg.Error):
            send(cluster.coordinator, range(5, 6))
        assert f"{key} 5" not in orders(cluster)
        cluster.move(key, cluster.workers[0])

        said = command("migrate", "--citus", "--url", cluster.coordinator.url)
        assert "3: added 2 boxes" in said
        assert "1: up to date" in said
        send(cluster.coordinator, range(5, 10))

        # Paused and drained, then moved: the order holds over both nodes.
        assert worker.drain(60) == 10
        cluster.move(key, spare)
        for member in (cluster.coordinator, cluster.workers[0], spare):
            send(
                member, range(10 + 5 * cluster.members.index(member), 15 + 5 * cluster.members.index(member))
            )
        assert spare.value("SELECT count(*) FROM infra.outbox_messages WHERE status = 'Ready'") == 15
        assert worker.drain(60) == 15
    numbers = [int(payload.split()[1]) for payload in order]
    assert numbers == sorted(numbers)
    assert len(orders(cluster)) == 25
