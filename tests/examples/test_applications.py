"""The applications under examples/: deployed, started, put under load, looked at, stopped."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import pysqlbox
from tests.examples.support import EXAMPLES, ask, at_once, environment, free_port, run, running, until

Database = Callable[[str], str]


def test_django(database: Database) -> None:
    """One invoice and one receipt for each order; the way back of the deployment is refused in words."""
    folder = EXAMPLES / "django_shop"
    env = environment(DATABASE_URL=database("django_shop"), DJANGO_SETTINGS_MODULE="shop.settings")
    assert "shop.0002_pysqlbox... OK" in run(folder, "manage.py", "migrate", env=env)
    assert "No changes detected" in run(folder, "manage.py", "makemigrations", "--check", env=env)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        running(folder, "manage.py", "runserver", "--noreload", str(port), env=env, codes=(0, -15)),
        running(folder, "manage.py", "pysqlbox", "work", "shop.worker:make_worker", env=env),
    ):
        until(lambda: ask(f"{url}/totals") == {"orders": 0, "invoices": 0, "receipts": 0})
        at_once(40, lambda n: ask(f"{url}/orders", {"customer": f"c{n % 3}", "cents": n}))
        until(lambda: ask(f"{url}/totals") == {"orders": 40, "invoices": 40, "receipts": 40})
    assert "40" in run(folder, "manage.py", "pysqlbox", "stats", env=env)
    refused = run(folder, "manage.py", "migrate", "shop", "0001", env=env, code=1)
    assert "it may hold messages" in refused


def test_alembic_and_sqlalchemy(database: Database) -> None:
    """The schema comes with the shop's own migrations, and stays when they are taken back."""
    folder = EXAMPLES / "alembic_shop"
    env = environment(DATABASE_URL=database("alembic_shop").replace("postgresql:", "postgresql+psycopg:", 1))
    run(folder, "-m", "alembic", "upgrade", "head", env=env)
    run(folder, "shop.py", "20", env=env)
    assert "20 done" in run(folder, "-m", "pysqlbox", "work", "shop:make_worker", "--drain", env=env)
    refused = run(folder, "-m", "alembic", "downgrade", "-1", env=env, code=1)
    assert "it may hold messages" in refused
    assert "0002 (head)" in run(folder, "-m", "alembic", "current", env=env)


def test_webhooks(database: Database) -> None:
    """Each delivery is sent twice and booked once."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = environment(PYSQLBOX_URL=database("webhooks"))
    with running(EXAMPLES / "webhooks", "webhooks.py", str(port), env=env):
        until(lambda: bool(ask(f"{url}/totals")["payments"] == 0))

        def deliver(number: int) -> str:
            payment = {"reference": f"A-{number // 2}", "cents": 100}
            return str(ask(f"{url}/webhooks", payment, {"Webhook-Id": str(number // 2)})["outcome"])

        outcomes = at_once(40, deliver)
        assert outcomes.count("created") == 20
        until(lambda: bool(ask(f"{url}/totals") == {"payments": 20, "cents": 2000}))


def test_a_receiver_of_webhooks_ends_after_the_request_that_sigterm_meets(database: Database) -> None:
    port = free_port()
    env = environment(PYSQLBOX_URL=database("webhooks_again"))
    with contextlib.ExitStack() as stack:
        with running(EXAMPLES / "webhooks", "webhooks.py", str(port), env=env):
            until(lambda: bool(ask(f"http://127.0.0.1:{port}/totals")["payments"] == 0))
            sender = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            sender.sendall(b"POST /webhooks HTTP/1.0\r\nWebhook-Id: 1\r\nContent-Length: 34\r\n\r\n")
            time.sleep(0.3)  # until it waits for the body, most likely
            body = b'{"reference": "A-1", "cents": 995}'
            threading.Timer(0.3, sender.sendall, [body]).start()
        assert b"202 Accepted" in sender.makefile("rb").readline()


def test_tenants(database: Database, tmp_path: Path) -> None:
    """Each tenant's orders are shipped in its own database; one that is added while it runs is served too."""
    urls = {tenant: database(f"tenant_{tenant}") for tenant in ("north", "south", "west")}
    file = tmp_path / "tenants.json"
    file.write_text(json.dumps({tenant: urls[tenant] for tenant in ("north", "south")}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def deployed(tenant: str) -> bool:
        return bool(ask(f"{url}/{tenant}", method="PUT") == {})

    def shipped(tenant: str) -> bool:
        return bool(ask(f"{url}/{tenant}/totals") == {"shipped": {tenant: 10}})

    with running(EXAMPLES / "tenants", "tenants.py", str(port), env=environment(TENANTS=str(file))):
        until(lambda: deployed("north") and deployed("south"))
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(f"{url}/west/totals")
        file.write_text(json.dumps(urls))
        until(lambda: deployed("west"))
        at_once(30, lambda n: ask(f"{url}/{[*urls][n % 3]}/orders", {}))
        until(lambda: all(shipped(tenant) for tenant in urls))


def test_fastapi(database: Database) -> None:
    """The worker is in the application's lifespan, and the dashboard is there."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = environment(DATABASE_URL=database("fastapi_shop"))
    command = ("-m", "uvicorn", "shop:app", "--port", str(port))
    with running(EXAMPLES / "fastapi_shop", *command, env=env, codes=(0, -15)):
        until(lambda: ask(f"{url}/totals") == {"orders": 0, "invoices": 0})
        headers = {"Content-Type": "application/json"}
        at_once(40, lambda n: ask(f"{url}/orders", {"customer": f"c{n % 3}", "cents": n}, headers))
        until(lambda: bool(ask(f"{url}/totals")["invoices"] == 40))
        assert ask(f"{url}/ops/readyz")
        with urllib.request.urlopen(f"{url}/ops/") as page:
            assert "outbox" in page.read().decode()


def test_rabbitmq(database: Database) -> None:
    """Each message is delivered twice by its sender, and billed once; the service ends well on SIGTERM."""
    pytest.importorskip("pika", reason="the extra pysqlbox[rabbitmq] is not installed")
    import pika

    from tests.service.broker import PROGRAM, broker

    if not PROGRAM.exists():
        pytest.skip("rabbitmq-server is not installed")
    url = database("rabbitmq_billing")
    with broker() as found, pika.BlockingConnection(pika.URLParameters(found)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        for number in range(40):
            properties = pika.BasicProperties(message_id=str(number // 2))
            body = json.dumps({"id": number // 2, "cents": 100}).encode()
            channel.basic_publish("", "orders", body, properties)
        env = environment(PYSQLBOX_URL=url, BROKER=found)
        with running(EXAMPLES / "rabbitmq_billing", "billing.py", env=env), pysqlbox.connect(url) as db:
            until(lambda: _processed(db) == 20)
            until(lambda: channel.queue_declare("orders", passive=True).method.message_count == 0)
            with db.connection() as bills:
                assert bills.execute("SELECT count(*), sum(cents) FROM bills").fetchone() == (20, 2000)


def _processed(db: pysqlbox.Deployment) -> int:
    """How many keys of the ledger are done; none before it is deployed."""
    try:
        return sum(each.status == "Processed" for each in db.ledger.list())
    except pysqlbox.SchemaMismatch:
        return 0
