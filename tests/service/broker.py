"""A RabbitMQ of one's own: Debian's, in a temporary folder, on ports of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from tests.service.processes import PATIENCE, until

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class _PortTaken(Exception):
    """Somebody took one of the free ports before the broker did."""


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """A running broker; yields its URL."""
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            with contextlib.suppress(_PortTaken):
                url = stack.enter_context(_tried())
                break
        else:
            raise AssertionError("each time somebody else had taken a port meanwhile")
        yield url


@contextlib.contextmanager
def _tried() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="pysqlbox-rabbitmq-"))
    port, distribution, names = _free_ports(3)
    config = folder / "rabbitmq.conf"
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\n", encoding="utf-8")
    local = "-kernel inet_dist_use_interface {127,0,0,1}"
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "RABBITMQ_BASE": str(folder),
        "RABBITMQ_NODENAME": f"pysqlbox-{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{local} +S 1:1 +sbwt none",
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    log = folder / "out"
    with log.open("wb") as out:
        # A session of its own, so that all its processes end together.
        process = subprocess.Popen(
            [str(PROGRAM)], env=environment, stdout=out, stderr=out, cwd="/", start_new_session=True
        )
    url = f"amqp://guest:guest@127.0.0.1:{port}/"
    try:
        until(lambda: process.poll() is not None or _answers(url), "the broker did not start", PATIENCE * 3)
        said = log.read_text(errors="replace")
        if process.poll() is not None and re.search("already_used|eaddrinuse", said):
            raise _PortTaken
        assert process.poll() is None, said[-2000:]
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        _end_names(names)
        shutil.rmtree(folder, ignore_errors=True)


def _end_names(port: int) -> None:
    """End the daemon of names that Erlang started beside it, which stays as long as it knows of a node."""
    epmd = shutil.which("epmd")
    if epmd is None:
        return
    command = [epmd, "-port", str(port), "-kill"]

    def ended() -> bool:
        subprocess.run(command, check=False, capture_output=True)
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    until(ended, "Erlang's daemon of names did not end")


def _answers(url: str) -> bool:
    try:
        pika.BlockingConnection(pika.URLParameters(url)).close()
    except (AMQPError, OSError):
        return False
    return True


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(each.getsockname()[1]) for each in held]
