"""Reading a request's body: of a bounded size, within a bounded time, as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from pysqlbox.service.limits import Limits
from pysqlbox.service.problems import Problem
from pysqlbox.wording import counted

__all__ = ["json_body"]


async def json_body(request: Request, limits: Limits) -> Any:
    """The body's JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "the body must be JSON, with Content-Type: application/json")
    raw = await _bytes(request, limits)
    try:
        return json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        # A number of thousands of digits is a ValueError too.
        raise Problem(400, "the body is not JSON", name="InvalidArgument") from None


async def _bytes(request: Request, limits: Limits) -> bytes:
    most = limits.body_bytes
    length = request.headers.get("content-length", "")
    if length.isdigit() and (len(length) > 18 or int(length) > most):
        raise _too_large(most)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise _too_large(most)
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(408, f"the body did not come within {counted(limits.body_seconds, 'second')}") from None
    except ClientDisconnect:
        raise Problem(400, "the client went away", name="InvalidArgument") from None
    return b"".join(chunks)


def _too_large(most: int) -> Problem:
    # The rest of the body is not read: the connection ends with this answer.
    return Problem(413, f"the body is larger than {most} bytes", headers={"connection": "close"})


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)
