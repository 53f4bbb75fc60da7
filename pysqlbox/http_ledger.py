"""The idempotency ledger of a service: the client of ``pysqlbox serve``, for programs without a database."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import re
import select
import ssl
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit
from uuid import UUID

import pysqlbox.errors as errors
from pysqlbox.arguments import Delay, uuid_of, whole_seconds
from pysqlbox.errors import (
    AccessDenied,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
)
from pysqlbox.messages import LedgerClaim, LedgerEntry
from pysqlbox.names import StoreKey
from pysqlbox.retry import Retries

__all__ = ["LONGEST_LEASE", "HttpLedger"]

LONGEST_LEASE = 86_400
"""Seconds of a claim without a lease: the longest that the service knows."""

_MAX_IDLE = 60.0
_MAX_ANSWER = 1_048_576
_BY_STATUS: Mapping[int, type[PysqlboxError]] = {
    400: InvalidArgument,
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    409: InvalidState,
    413: InvalidArgument,
    415: InvalidArgument,
}
_FAULTS = (OSError, http.client.HTTPException)

_log = logging.getLogger("pysqlbox.ledger")


class HttpLedger:
    """The ledger behind a URL, for ``Idempotent`` in place of a deployment; safe to share between threads.

    Connections are kept and used again. What goes wrong on the way, and a service whose database is away, is
    tried again within ``timeout``: no call makes more of a second try than of the first, except that a claim
    whose answer was lost is Busy until its lease ends.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        store: StoreKey | None = None,
        timeout: float = 10.0,
        retries: Retries | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """``url`` is where the service is mounted: ``http://127.0.0.1:8080``, ``https://host/queue``.

        ``store``: the key of one of its stores, where it serves many.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        unwanted = parts.query or parts.fragment or parts.username or parts.password
        if parts.scheme not in ("http", "https") or not host or unwanted:
            raise InvalidArgument("url: must be http://host:port or https://host:port, perhaps with a path")
        if token is not None and not re.fullmatch(r"[!-~]+( [!-~]+)*", token):
            raise InvalidArgument("token: must be printable ASCII without blanks around it")
        if timeout <= 0:
            raise InvalidArgument("timeout: must be above 0")
        self._host, self._port = host, port
        self._base = parts.path.rstrip("/")
        self._context = context or (ssl.create_default_context() if parts.scheme == "https" else None)
        self._token = token
        self._query = "" if store is None else f"?store={quote(str(store), safe='')}"
        self._timeout = timeout
        self._retries = retries or Retries(attempts=3, give_up_seconds=timeout)
        self._shown = f"{parts.scheme}://{parts.netloc}{self._base}"
        self._lock = threading.Lock()
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<pysqlbox.HttpLedger {self._shown}>"

    def try_begin(
        self,
        key: str,
        *,
        owner: str | None = None,
        lease_seconds: Delay | None = None,
        handler: str | None = None,
        connection: Any = None,
    ) -> LedgerClaim:
        """Try to become the one who does what a key stands for; without ``lease_seconds`` for a day.

        ``handler`` is for a ledger in a database; the service has no place for it.
        """
        del handler
        _refuse_connection(connection)
        seconds = whole_seconds("lease_seconds", lease_seconds)
        found = self._post(
            "try-begin", key=key, owner=owner, leaseSeconds=LONGEST_LEASE if seconds is None else seconds
        )
        claim = LedgerClaim(
            found["status"], uuid_of("leaseId", found.get("leaseId")), _moment(found.get("expiresAt")), 0
        )
        _log.debug("key %r: %s [%s]", key, claim.status, self._shown)
        return claim

    def mark_processed(self, key: str, lease_id: UUID | None = None, *, connection: Any = None) -> int:
        """Note that a key is done; with a lease only if it is still the key's, without one whatever it is."""
        _refuse_connection(connection)
        lease = uuid_of("lease_id", lease_id)
        found = self._post("mark-processed", key=key, leaseId=None if lease is None else str(lease))
        return int(found["affected"])

    def release(self, key: str, lease_id: UUID, *, connection: Any = None) -> int:
        """Let go of a key, so that another may begin it; 0 if the lease is not the key's any more."""
        _refuse_connection(connection)
        return int(self._post("release", key=key, leaseId=str(uuid_of("lease_id", lease_id)))["affected"])

    def get(self, key: str, *, connection: Any = None) -> LedgerEntry:
        """What is known of a key; its status is Unknown if nothing is."""
        _refuse_connection(connection)
        if not isinstance(key, str) or not key:
            raise InvalidArgument("key: must be text that is not empty")
        path = quote(key, safe="", errors="surrogatepass").replace(".", "%2E")
        found = self._call("GET", f"/v1/inbox/{path}", None)
        return LedgerEntry(
            found["status"], int(found["attempts"]), _moment(found["firstSeen"]),
            _moment(found["lastSeen"]), _moment(found.get("leaseUntil")), None,
        )  # fmt: skip

    def is_processed(self, key: str, *, connection: Any = None) -> bool:
        """Whether a key was handled; one that somebody is handling now was not yet."""
        return self.get(key, connection=connection).status == "Processed"

    def cleanup(self, retention_seconds: Delay, *, batch_size: int = 1000) -> int:
        """Not by HTTP: the service's database is cleaned by its own upkeep."""
        del retention_seconds, batch_size
        raise InvalidState("a service's ledger is cleaned where its database is: pysqlbox cleanup, or Upkeep")

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _post(self, step: str, **body: object) -> dict[str, Any]:
        return self._call("POST", f"/v1/inbox/{step}", body)

    def _call(self, method: str, path: str, body: dict[str, object] | None) -> dict[str, Any]:
        """The answer to a request, after as many tries as it takes."""
        content = None if body is None else json.dumps(body).encode()
        started = time.monotonic()
        tried = 0
        while True:
            tried += 1
            pause = self._retries.pause(tried)
            try:
                status, headers, raw = self._ask(method, path, content)
            except _FAULTS as fault:
                failure: PysqlboxError = DatabaseUnavailable(
                    f"{self._shown}: {fault or type(fault).__name__}"
                )
                failure.__cause__ = fault
            else:
                if status == 200:
                    return _object(raw, self._shown)
                failure = _failure(status, raw, self._shown)
                if status != 503:
                    raise failure
                with contextlib.suppress(ValueError):
                    pause = max(pause, float(headers.get("retry-after", "0")))
            left = self._timeout - (time.monotonic() - started)
            if tried >= self._retries.attempts or pause >= left:
                raise failure
            _log.warning("trying again (%s of %s): %s", tried, self._retries.attempts, failure)
            time.sleep(pause)

    def _ask(self, method: str, path: str, content: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        connection = self._take()
        headers = {"accept": "application/json"}
        if content is not None:
            headers["content-type"] = "application/json"
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, self._base + path + self._query, content, headers)
            response = connection.getresponse()
            raw = response.read(_MAX_ANSWER)
            is_over = response.will_close or not response.isclosed()
        except BaseException:
            connection.close()
            raise
        if is_over:
            connection.close()
        else:
            with self._lock:
                self._idle.append((connection, time.monotonic()))
        return response.status, {name.lower(): value for name, value in response.getheaders()}, raw

    def _take(self) -> http.client.HTTPConnection:
        """A connection that the service has not closed, as far as can be told; or a new one."""
        with self._lock:
            if self._pid != os.getpid():  # a forked child has connections of its own
                self._idle, self._pid = [], os.getpid()
            while self._idle:
                connection, since = self._idle.pop()
                if time.monotonic() - since < _MAX_IDLE and _is_quiet(connection):
                    return connection
                connection.close()
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=self._context
        )


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection is as it should be: what could be read there is its end."""
    sock: Any = connection.sock
    if sock is None:
        return False
    if not hasattr(select, "poll"):  # Windows, whose select takes a socket of any number
        return not select.select([sock], [], [], 0)[0]
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)


def _object(raw: bytes, shown: str) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise PysqlboxError(
            f"{shown}: the URL must be that of a pysqlbox service; this answered something that is not JSON"
        ) from error
    if not isinstance(found, dict):
        raise PysqlboxError(
            f"{shown}: the URL must be that of a pysqlbox service; this answered something that is no object"
        )
    return found


def _failure(status: int, raw: bytes, shown: str) -> PysqlboxError:
    """The error that a problem tells of, by its name, else by its status."""
    try:
        problem = json.loads(raw)
    except ValueError:
        problem = None
    found = problem if isinstance(problem, dict) else {}
    detail = str(found.get("detail") or f"status {status}")
    kind = _BY_STATUS.get(status, DatabaseUnavailable if status == 503 else PysqlboxError)
    name = found.get("name")
    if status in (500, 503) and name in errors.__all__:
        kind = getattr(errors, name)
    return kind(detail if kind is InvalidArgument else f"{shown}: {detail}")


def _moment(text: object) -> datetime | None:
    return None if text is None else datetime.fromisoformat(str(text))


def _refuse_connection(connection: Any) -> None:
    if connection is not None:
        raise InvalidArgument(
            "connection: must not be given, for a service's ledger is in no transaction of its caller's"
        )
