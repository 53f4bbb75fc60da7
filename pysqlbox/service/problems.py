"""Errors as ``application/problem+json`` (RFC 9457), whose ``name`` is the error's name."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from pysqlbox.errors import (
    DatabaseUnavailable,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)

__all__ = ["Problem", "problem_of", "problem_response"]

_log = logging.getLogger("pysqlbox.service")

#: What a caller is told of faults that are not his; the log has the rest.
_AWAY = "the database does not answer"
_NOT_DEPLOYED = "the database has no schema that this release of pysqlbox can use"
_SILENCE = 10.0
"""Seconds between two lines of the log that say the same."""
_warned_at: dict[str, float] = {}
_FAULT = "something went wrong here; the service's log has the details"


class Problem(Exception):
    """A request that cannot be answered, with the HTTP status that says so."""

    def __init__(
        self, status: int, detail: str, *, name: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """``name`` is the error's; without one it is made of the status: ``NotFound``, ``Unauthorized``."""
        super().__init__(detail)
        self.status = status
        self.title = HTTPStatus(status).phrase
        self.detail = detail
        self.name = name or "".join(word.capitalize() for word in self.title.replace("-", " ").split())
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The answer."""
        content = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "name": self.name,
        }
        body = json.dumps(content, ensure_ascii=True).encode()
        return Response(
            body, self.status, headers=self.headers | {"cache-control": "no-store"},
            media_type="application/problem+json",
        )  # fmt: skip


def problem_of(error: PysqlboxError, retry_after: int) -> Problem:
    """What a caller is told of one of our errors."""
    name = type(error).__name__
    if isinstance(error, InvalidArgument):
        return Problem(400, str(error), name="InvalidArgument")
    if isinstance(error, NotFound):
        return Problem(404, str(error), name="NotFound")
    if isinstance(error, InvalidState):
        return Problem(409, str(error), name="InvalidState")
    again = {"retry-after": str(retry_after)}
    if isinstance(error, DatabaseUnavailable):
        _warn(_AWAY, error)
        return Problem(503, _AWAY, name=name, headers=again)
    if isinstance(error, SchemaMismatch):
        _warn(_NOT_DEPLOYED, error)
        return Problem(503, _NOT_DEPLOYED, name=name, headers=again)
    _log.error("%s: %s", name, error)
    return Problem(500, _FAULT, name=name)


def _warn(what: str, error: PysqlboxError) -> None:
    """Log what every request would say, at most once in a while."""
    now = time.monotonic()
    if now - _warned_at.get(what, -_SILENCE) >= _SILENCE:
        _warned_at[what] = now
        _log.warning("%s: %s", what, error)


def problem_response(request: Request, error: Exception) -> Response:
    """For Starlette: what its own errors, of unknown paths and methods, look like."""
    del request
    status = getattr(error, "status_code", 500)
    headers = getattr(error, "headers", None)
    detail = {
        404: "there is nothing at this path",
        405: "this path does not take this method",
    }.get(status, str(getattr(error, "detail", "")) or _FAULT)
    return Problem(status, detail, headers=headers).response()
