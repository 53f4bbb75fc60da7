"""``manage.py pysqlbox_tasks``: a worker of the tasks of one backend of the settings' TASKS."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc]  # Django has no type information
    """Runs until SIGTERM or Ctrl-C, then lets running tasks end."""

    help = "Works the tasks of a backend of TASKS that is pysqlbox.contrib.django.tasks.PysqlboxBackend."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which tasks, and how many at once."""
        parser.add_argument("--backend", default="default", help="its name in TASKS (default: default)")
        parser.add_argument("--queue", action="append", help="only this queue; may be repeated")
        parser.add_argument("--threads", type=int, default=8, help="tasks at once (default: 8)")
        parser.add_argument("--drain", action="store_true", help="end when nothing is left")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it, in the main thread, where signals arrive."""
        from pysqlbox.contrib.django.tasks import make_worker

        del args
        if not logging.getLogger().handlers and not logging.getLogger("pysqlbox").handlers:
            logging.basicConfig(stream=sys.stderr, level=logging.INFO)  # the settings say nothing of it
        worker = make_worker(options["backend"], queues=options["queue"], threads=options["threads"])
        if options["drain"]:
            worker.drain()
        else:
            worker.run()
        counts = worker.stats()
        self.stdout.write(f"{counts.acked} done, {counts.retried} to be tried again, {counts.dead} given up")
