"""Finding out who asks: by bearer token, by what an application around this one knows, or as this machine."""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.requests import Request

from pysqlbox.dashboard.gate import FORWARDED
from pysqlbox.service.problems import Problem
from pysqlbox.service.roles import Role
from pysqlbox.service.tokens import Caller, Tokens

__all__ = ["Access", "Authenticator", "is_loopback"]

#: Answers who asks, or None if it cannot tell.
Authenticator = Callable[[Request], Caller | Awaitable[Caller | None] | None]

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCAL = Caller("local", Role.ADMIN)


class Access:
    """Who may come in.

    With neither tokens nor authenticators whoever is on this machine may do everything, and nobody else
    anything: both the client's address and the Host it asked for must be loopback, so that no page of the web
    gets in under a name that was made to lead here; and nobody whom a proxy on this machine speaks for.
    """

    def __init__(self, tokens: Tokens | None = None, *authenticators: Authenticator) -> None:
        self.tokens = tokens
        self.authenticators = list(authenticators)

    @property
    def hint(self) -> str:
        """What ``GET /v1/inbox`` says of authentication."""
        return "none" if self.tokens is None else "bearer"

    async def caller(self, request: Request) -> Caller | None:
        """Who asks, if that can be told; a token that is wrong is refused at once."""
        token = _bearer(request)
        if token is not None and self.tokens is not None:
            found = self.tokens.find(token)
            if found is None:
                raise _unauthorized("this token is not known", error="invalid_token")
            return found
        for authenticator in self.authenticators:
            answer = authenticator(request)
            caller = await answer if inspect.isawaitable(answer) else answer
            if caller is not None:
                _refuse_other_sites(request)
                return caller
        if self.tokens is None and not self.authenticators:
            if not _is_local(request):
                raise Problem(
                    403,
                    "without tokens only this machine is answered: as localhost, and through no proxy",
                )
            _refuse_other_sites(request)
            return _LOCAL
        return None

    async def require(self, request: Request, least: Role | None) -> Caller | None:
        """Who asks, if that one may; routes without a role are for everybody."""
        if least is None:
            return None
        caller = await self.caller(request)
        if caller is None:
            raise _unauthorized("a token is needed: Authorization: Bearer …")
        if not caller.role.may(least):
            raise Problem(403, f"this is for the role {least}, and {caller.name} has the role {caller.role}")
        return caller


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _is_local(request: Request) -> bool:
    client = request.client  # None of a UNIX socket
    if client is not None and not is_loopback(client.host):
        return False
    if any(name in request.headers for name in FORWARDED):
        return False
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


def _refuse_other_sites(request: Request) -> None:
    """No page of another site may change anything with what the browser knows of its user."""
    if request.method in _SAFE:
        return
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or (
        origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise Problem(403, "a page of another site may change nothing here")


def _unauthorized(detail: str, *, error: str | None = None) -> Problem:
    challenge = 'Bearer realm="pysqlbox"' + (f', error="{error}"' if error else "")
    return Problem(401, detail, headers={"www-authenticate": challenge})
