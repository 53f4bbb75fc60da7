"""A TCP proxy before a PostgreSQL server's socket that cuts connections on request."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

from pysqlbox.drivers import connect
from tests.support.database import Database

Cut = Callable[[int], str | None]
"""Told how many times clients have said something, answers "before" (the server does not hear it), "after"
(it does, but its answer does not come through) or None."""


class Proxy:
    """Passes on what clients and server say, chunk by chunk."""

    def __init__(self, target: str, cut: Cut, port: int = 0) -> None:
        self._target = target
        self._cut = cut
        self._listener = socket.create_server(("127.0.0.1", port))
        self._said = 0
        #: While it is set the proxy passes on nothing, and says nothing, of all connections.
        self.frozen = threading.Event()
        self._lock = threading.Lock()
        self.cuts = 0
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """No more connections are taken."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            silent = threading.Event()
            threading.Thread(target=self._to_server, args=(client, server, silent), daemon=True).start()
            threading.Thread(target=self._to_client, args=(client, server, silent), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self._thaw()
                with self._lock:
                    self._said += 1
                    cut = self._cut(self._said)
                    self.cuts += cut is not None
                if cut == "before":
                    break
                if cut == "after":
                    silent.set()
                    server.sendall(data)
                    time.sleep(0.05)  # the server does what it was asked
                    break
                server.sendall(data)
        _end(client, server)

    def _thaw(self) -> None:
        while self.frozen.is_set():
            time.sleep(0.01)

    def _to_client(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self._thaw()
                if not silent.is_set():
                    client.sendall(data)
        _end(client, server)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextlib.contextmanager
def proxy(db: Database, cut: Cut = lambda _said: None, *, port: int = 0) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the database of a test, and the URL to reach it through the proxy."""
    connection = connect(db.url)
    info = connection.info
    path, name = f"{info.host}/.s.PGSQL.{info.port}", info.dbname
    user = quote(info.user)
    connection.close()
    running = Proxy(path, cut, port)
    try:
        yield running, f"postgresql://{user}@127.0.0.1:{running.port}/{name}?sslmode=disable"
    finally:
        running.close()
