"""A small HTTP server for Prometheus, in a thread of its own."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pysqlbox.errors import InvalidArgument
from pysqlbox.metrics.exposition import CONTENT_TYPE

__all__ = ["address_of", "serving"]

#: A client that sends or takes nothing for so long is let go.
PATIENCE_SECONDS = 10.0
#: So many are served at the same time; whoever comes on top is sent away.
AT_ONCE = 50


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9464`` or ``[::1]:9464``; ``:9464`` is every address of this machine."""
    match = re.fullmatch(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]*):)?(?P<port>[0-9]{1,5})", text.strip())
    if match is None or int(match["port"]) > 65535:
        raise InvalidArgument(f"metrics: must be a port or host:port, such as :9464, not {text!r}")
    return (match["host"] or "").strip("[]"), int(match["port"])


@contextlib.contextmanager
def serving(address: tuple[str, int], text: Callable[[], str]) -> Iterator[int]:
    """Serve ``GET /metrics`` until the end of the block; answers the port, drawn if 0 was asked for."""
    host, port = address
    server = _Server(host, port, text)
    thread = threading.Thread(target=server.serve_forever, name="pysqlbox-metrics-server", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.text = text
        self._places = threading.BoundedSemaphore(AT_ONCE)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE_SECONDS
    server_version = "pysqlbox"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "GET /metrics is what there is")
            return
        body = self.server.text().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *values: object) -> None:
        """A scrape every few seconds is nothing to tell of."""
