"""Where the database is: the URL, the environment, or an embedded server that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pysqlbox
from pysqlbox import InvalidArgument
from pysqlbox.drivers import parse_url
from pysqlbox.locate import locate

URL = "postgresql://me@here/shop"


class _Server:
    """Stands for the embedded server; notes where it was started."""

    started: list[Path] = []  # noqa: RUF012  # emptied by the fixture

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self) -> str:
        self.started.append(self.directory)
        return URL


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The data directories of the servers that were started."""
    monkeypatch.setenv("PYSQLBOX_DATA", "/data/postgres")
    monkeypatch.delenv("PYSQLBOX_URL", raising=False)
    monkeypatch.setattr("pysqlbox.locate.EmbeddedServer", _Server)
    _Server.started.clear()
    return _Server.started


def test_a_url_or_a_target_is_taken_as_it_is(servers: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSQLBOX_URL", "postgresql://elsewhere/")
    assert locate(URL) == (parse_url(URL), None)
    assert locate(parse_url(URL)) == (parse_url(URL), None)
    assert servers == []


def test_without_a_url_the_environment_counts(servers: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSQLBOX_URL", URL)
    assert locate(None) == (parse_url(URL), None)
    monkeypatch.setenv("PYSQLBOX_URL", "embedded:")
    assert locate(None)[0] == parse_url(URL)
    assert servers == [Path("/data/postgres")]


@pytest.mark.parametrize("empty", [None, "", " "])
def test_without_both_it_is_an_error_that_names_the_three_ways(
    empty: str | None, servers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if empty is not None:
        monkeypatch.setenv("PYSQLBOX_URL", empty)
    with pytest.raises(InvalidArgument) as caught:
        pysqlbox.connect()
    assert all(way in str(caught.value) for way in ("postgresql://", "PYSQLBOX_URL", "embedded:"))
    assert servers == []


def test_an_empty_url_is_not_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSQLBOX_URL", URL)
    with pytest.raises(InvalidArgument, match="there is none"):
        locate("")


def test_embedded_servers_have_directories_of_their_own(servers: list[Path]) -> None:
    for url in ("embedded:", "embedded:tests", "embedded:a-1_b"):
        target, server = locate(url)
        assert (target, isinstance(server, _Server)) == (parse_url(URL), True)
    assert servers == [Path("/data/postgres"), Path("/data/postgres-tests"), Path("/data/postgres-a-1_b")]


@pytest.mark.parametrize("name", ["../up", "a/b", " ", "-x", "a" * 64, "ä"])
def test_a_name_that_is_no_name(name: str, servers: list[Path]) -> None:
    with pytest.raises(InvalidArgument, match="embedded:NAME"):
        locate(f"embedded:{name}")
    assert servers == []


def test_a_deployment_stops_the_server_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Any] = []
    monkeypatch.setattr(_Server, "stop", lambda self: stopped.append(self), raising=False)
    with pysqlbox.connect("embedded:"):
        assert stopped == []
    assert len(stopped) == 1
