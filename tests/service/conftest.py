"""The service on the database of the test."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox import service
from tests.service.support import TOKENS, local_client
from tests.support.database import Database


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The deployment of the test."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=4) as opened:
        yield opened


@pytest.fixture
def client(deployment: pysqlbox.Deployment) -> Iterator[TestClient]:
    """A client on this machine of a service without tokens, who thus may do everything."""
    with local_client(service.app(deployment)) as opened:
        yield opened


@pytest.fixture
def guarded(deployment: pysqlbox.Deployment) -> Iterator[TestClient]:
    """A client of a service with a token for each role; see ``support.bearer``."""
    with local_client(service.app(deployment, tokens=service.Tokens(TOKENS))) as opened:
        yield opened


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port of this machine that nobody listens on, and that nobody else is given meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
