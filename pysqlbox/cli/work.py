"""``pysqlbox work``: run a worker that a module defines."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import click
from click.core import ParameterSource

from pysqlbox.cli.loading import load, parameters
from pysqlbox.cli.many import open_stores, stores_option
from pysqlbox.cli.options import DURATION, schema_option, url_option
from pysqlbox.deployment import connect
from pysqlbox.errors import InvalidArgument
from pysqlbox.logs import JsonFormatter
from pysqlbox.worker import Worker

__all__ = ["logging_to_stderr", "work"]

REFRESH = 0.5
"""Seconds between two states of the live line."""


@click.command(short_help="Run a worker until SIGTERM or Ctrl-C.")
@click.argument("target", metavar="MODULE:WORKER")
@url_option
@schema_option
@stores_option
@click.option("--threads", type=click.IntRange(1, 1000), help="In place of the worker's own number.")
@click.option("--drain", is_flag=True, help="End when nothing is left that could be claimed.")
@click.option(
    "--stop-timeout",
    type=DURATION,
    default="30s",
    show_default=True,
    help="How long running handlers may take to end.",
)
@click.option(
    "--metrics",
    metavar="[HOST]:PORT",
    help="Serve GET /metrics there for Prometheus, of the worker and its deployment, or of all its stores.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log, unless the module sets up logging itself.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How: lines for people, or JSON with a field for each thing that a record is about.",
)
@click.pass_context
def work(
    ctx: click.Context,
    target: str,
    url: str | None,
    schema: str,
    stores_name: str | None,
    threads: int | None,
    drain: bool,
    stop_timeout: timedelta,
    metrics: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the worker WORKER of MODULE until SIGTERM or Ctrl-C, then let running handlers end.

    WORKER is a pysqlbox.Worker, or a function that answers one: without parameters, or with one, which is
    given the Deployment that --url and --schema lead to, or with --stores the Stores.

    \b
    Examples:
      pysqlbox work shop.worker:worker
      pysqlbox work shop.worker:make_worker --url postgresql://… --threads 16
      pysqlbox work shop.worker:worker --drain
      pysqlbox work shop.worker:make_worker --stores shop.tenants:stores
      pysqlbox work shop.worker:worker --metrics :9464
    """
    found = load(target, "MODULE:WORKER")
    with _worker(ctx, found, url, schema, stores_name) as worker:
        if threads is not None:
            worker.threads = threads
        with (
            logging_to_stderr(log_level, log_format),
            _serving(metrics, worker, live=log_format == "text"),
        ):
            _run(worker, drain, stop_timeout, live=log_format == "text")


def _run(worker: Worker, drain: bool, stop_timeout: timedelta, *, live: bool) -> None:
    started = time.monotonic()
    with _live_line(worker) if live else nullcontext():
        if drain:
            worker.drain()
        else:
            worker.run(stop_timeout=stop_timeout)
    seconds = max(time.monotonic() - started, 0.001)
    _say(f"{_counts(worker)} in {seconds:.1f} s", worker, live)


def _say(text: str, worker: Worker, live: bool) -> None:
    """Tell a person, or, where the output is for machines, the log."""
    if live:
        click.echo(text, err=True)
    else:
        worker._log.info("%s", text)  # its friend


@contextmanager
def _worker(
    ctx: click.Context, found: Any, url: str | None, schema: str, stores_name: str | None
) -> Iterator[Worker]:
    """The worker that was found or made; a Deployment that was made for it is closed at the end."""
    takes_deployment = callable(found) and parameters(found) > 0
    if stores_name is not None:
        if not takes_deployment:
            raise click.UsageError("--stores: must stand beside a function that takes the Stores")
        with open_stores(stores_name) as stores:
            yield _checked(found(stores))
        return
    if not takes_deployment:
        for name in ("url", "schema"):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name}: is for a function that takes a Deployment")
        yield _checked(found() if callable(found) else found)
        return
    with connect(url, schema=schema) as db:
        yield _checked(found(db))


def _checked(found: Any) -> Worker:
    if not isinstance(found, Worker):
        text = f"must be a Worker or a function that answers one, not {type(found).__name__}"
        raise click.BadParameter(text, param_hint="MODULE:WORKER")
    return found


@contextmanager
def logging_to_stderr(level: str, form: str = "text") -> Iterator[None]:
    """Log to the standard error, unless somebody set up logging before; JSON is written there as well."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    if not handlers:
        handlers = [logging.StreamHandler()]
        before = root.level
        root.addHandler(handlers[0])
        root.setLevel(level.upper())
        try:
            with _formatted(handlers, _formatter(form)):
                yield
        finally:
            root.removeHandler(handlers[0])
            root.setLevel(before)
    elif form == "json":
        with _formatted(handlers, _formatter(form)):
            yield
    else:
        yield


def _formatter(form: str) -> logging.Formatter:
    if form == "json":
        return JsonFormatter()
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""  # of what the live line has there
    return logging.Formatter(clear + "%(asctime)s %(levelname)-7s %(name)s: %(message)s")


@contextmanager
def _formatted(handlers: list[logging.Handler], formatter: logging.Formatter) -> Iterator[None]:
    before = [handler.formatter for handler in handlers]
    for handler in handlers:
        handler.setFormatter(formatter)
    try:
        yield
    finally:
        for handler, old in zip(handlers, before, strict=True):
            handler.setFormatter(old)


@contextmanager
def _serving(address: str | None, worker: Worker, *, live: bool) -> Iterator[None]:
    """Metrics of the worker while it runs, where they were asked for."""
    if address is None:
        yield
        return
    from pysqlbox.metrics.server import address_of, serving
    from pysqlbox.metrics.worker import WorkerExporter

    with ExitStack() as stack:
        try:
            where = address_of(address)
            port = stack.enter_context(serving(where, WorkerExporter(worker).__str__))
        except (InvalidArgument, OSError) as error:
            raise click.BadParameter(str(error), param_hint="--metrics") from error
        _say(f"metrics: http://{where[0] or socket.gethostname()}:{port}/metrics", worker, live)
        yield


@contextmanager
def _live_line(worker: Worker) -> Iterator[None]:
    """What the worker is doing, on a line of its own that is written over, where a person looks at it."""
    if not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(worker, ended), name="pysqlbox-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        click.echo("\r\x1b[K", nl=False, err=True)


def _show(worker: Worker, ended: threading.Event) -> None:
    handled, seen_at = worker.stats().handled, time.monotonic()
    while not ended.wait(REFRESH):
        stats, now = worker.stats(), time.monotonic()
        rate = (stats.handled - handled) / (now - seen_at)
        handled, seen_at = stats.handled, now
        line = f"{_counts(worker)} · {stats.busy_threads} of {worker.threads} busy · {rate:,.0f}/s"
        click.echo(f"\r\x1b[K{line}", nl=False, err=True)


def _counts(worker: Worker) -> str:
    stats = worker.stats()
    return (
        f"{stats.acked:,} done, {stats.retried:,} retried, {stats.released:,} released, {stats.dead:,} dead"
    )
