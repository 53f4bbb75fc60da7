"""Server images through testcontainers, where Docker answers; nothing of it costs time where it does not.

`PYSQLBOX_TEST_DOCKER=0` leaves them out on a machine that has Docker.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

from pysqlbox.drivers.mssql import installed_drivers
from pysqlbox.names import Dialect

DOCKER_VARIABLE = "PYSQLBOX_TEST_DOCKER"
PASSWORD = "Test_only_1"


@dataclass(frozen=True, slots=True)
class Image:
    """A server image that the suite runs on."""

    id: str
    dialect: Dialect
    name: str
    is_versioned: bool = True
    """SQL Server: whether the deployment's database has READ_COMMITTED_SNAPSHOT on."""

    def missing(self) -> str | None:
        """Why this image cannot be used although Docker answers."""
        if self.dialect == "postgres":
            return None
        if importlib.util.find_spec("pyodbc") is None:
            return "the extra pysqlbox[mssql] is not installed"
        if not installed_drivers():
            return (
                "no ODBC driver for SQL Server is installed: msodbcsql18, tdsodbc or pip's mssql-python-odbc"
            )
        return None

    @contextlib.contextmanager
    def start(self) -> Iterator[str]:
        """Runs the image; yields the URL of its administrative database."""
        if self.dialect == "postgres":
            server = container_class("postgres", "PostgresContainer")(
                self.name, username="postgres", password=PASSWORD, dbname="postgres"
            )
            with server:
                yield f"postgresql://postgres:{PASSWORD}@{_address(server, 5432)}/postgres"
        else:
            server = container_class("mssql", "SqlServerContainer")(
                self.name, username="sa", password=PASSWORD, dialect="mssql+pyodbc"
            )
            with server:
                address = _address(server, 1433)
                yield f"mssql://sa:{quote(PASSWORD)}@{address}/master?TrustServerCertificate=yes&query_timeout=300"


def container_class(module: str, name: str) -> Any:
    """A class of testcontainers, which has moved its modules and warns where they were before."""
    moved = importlib.util.find_spec("testcontainers.community") is not None
    package = "testcontainers.community" if moved else "testcontainers"
    return getattr(importlib.import_module(f"{package}.{module}"), name)


def _address(server: Any, port: int) -> str:
    return f"{server.get_container_host_ip()}:{server.get_exposed_port(port)}"


def _sql_server(year: int) -> tuple[Image, Image]:
    """One image twice: as deployments require it, and with reads that wait for writers."""
    name = f"mcr.microsoft.com/mssql/server:{year}-latest"
    return (
        Image(f"sqlserver{year}", "mssql", name),
        Image(f"sqlserver{year}-locking", "mssql", name, is_versioned=False),
    )


IMAGES = (
    *_sql_server(2019),
    *_sql_server(2022),
    *_sql_server(2025),
    Image("postgres16", "postgres", "postgres:16"),
    Image("postgres17", "postgres", "postgres:17"),
)


@cache
def missing() -> str | None:
    """Why no image can be run here; the first thing that fails decides, and none of them waits long."""
    if os.environ.get(DOCKER_VARIABLE) == "0":
        return f"{DOCKER_VARIABLE}=0"
    if importlib.util.find_spec("testcontainers") is None:
        return "testcontainers is not installed"
    if not _answers():
        return "Docker does not answer"
    return None


def _answers() -> bool:
    """Whether the Docker daemon accepts a connection."""
    host = urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    with contextlib.closing(
        socket.socket(socket.AF_UNIX if host.scheme == "unix" else socket.AF_INET)
    ) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(
                host.path if host.scheme == "unix" else (host.hostname or "127.0.0.1", host.port or 2375)
            )
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in probe.recv(64)
        except OSError:
            return False
