"""A worker process with a transactional handler that hangs at a moment, to be killed there.

Run as ``python -m tests.worker.transactional_program URL SCHEMA JOURNAL OPTIONS``; of the options ``moment``
says after which statement every so manieth call (``every``) hangs.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

import pysqlbox
from pysqlbox.drivers import mssql
from pysqlbox.worker import Context, transactions
from tests.worker.program import Journal


def main(url: str, schema: str, journal_path: str, options: str) -> None:
    """Works until a signal comes."""
    journal = Journal(journal_path)
    settings = json.loads(options)
    moment, every = settings.pop("moment"), settings.pop("every")
    numbers = itertools.count(1)

    def hang(message: Any, at: str, number: int) -> None:
        if at == moment and number % every == 0:
            journal.write("hang", message)
            time.sleep(600)

    begun: dict[int, tuple[int, Any]] = {}

    def fetch(connection: Any, schema: str, routine: str, arguments: Any) -> Any:
        rows = fetch_as_ever(connection, schema, routine, arguments)
        if routine == "outbox_ack":
            number, message = begun[arguments["ids"][0]]
            hang(message, "in the commit", number)
        return rows

    # SQL Server has a moment between the ack and the commit; PostgreSQL is sent both at once.
    fetch_as_ever, mssql.fetch = mssql.fetch, fetch
    run = transactions.Transactions.run

    def run_and_hang(self: Any, assignment: Any, handler: Any, messages: Any, *rest: Any) -> Any:
        results = run(self, assignment, handler, messages, *rest)
        hang(messages[0], "committed", begun[messages[0].id][0])
        return results

    transactions.Transactions.run = run_and_hang  # type: ignore[method-assign, assignment]  # the first one after it
    with pysqlbox.connect(url, schema=schema) as db:
        worker = db.worker(**settings)
        postgres = url.startswith("postgresql")
        quoted = f'"{schema}"' if postgres else f"[{schema}]"

        @worker.handler("t", transactional=True)
        def handle(message: Any, context: Context) -> None:
            number = next(numbers)
            begun[message.id] = number, message
            hang(message, "begun", number)
            context.connection.execute(f"INSERT INTO {quoted}.effects (message) VALUES ({message.id})")
            hang(message, "written", number)
            mail: Any = db.box("mail")
            mail.enqueue("sent", str(message.id), connection=context.connection)
            hang(message, "sent", number)
            if moment == "in the commit" and number % every == 0 and postgres:
                context.connection.execute("SET LOCAL pysqlbox_test.hang = 'on'")
                journal.write("hang", message)

        worker.on_start(lambda: print("ready", flush=True))
        worker.run()
    print(json.dumps({"left": []}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
