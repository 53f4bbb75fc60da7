"""Who comes in: the Host header, the session, the role, and where a form came from."""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from starlette.requests import Request

from pysqlbox.dashboard.people import ADMIN, NOBODY, Caller, Person
from pysqlbox.dashboard.sessions import COOKIE, Session, Sessions

__all__ = ["FORWARDED", "Authenticator", "Gate", "Refused"]

#: Answers who asks, or None if it cannot tell.
Authenticator = Callable[[Request], Caller | Awaitable[Caller | None] | None]

#: What proxies tell of who asked them, of which there is nothing where nobody stands between.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class Refused(Exception):
    """A request that is not let in; ``status`` 401 sends a browser to the login."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Gate:
    """Lets people in. With tokens by their role; without, whoever sits at this machine."""

    def __init__(
        self,
        sessions: Sessions,
        find: Callable[[str], Caller | None] | None = None,
        known: Sequence[Authenticator] = (),
        allowed_hosts: Collection[str] = (),
    ) -> None:
        """``find`` answers whose token it is, ``known`` who is known by something else.

        Without both the dashboard is open to loopback, and to nobody else. ``allowed_hosts`` are the names
        under which it is reached, any if there are none; without tokens those of the loopback.
        """
        self.sessions = sessions
        self.find = find
        self._known = list(known)
        self._hosts = {each.lower() for each in allowed_hosts}

    @property
    def is_open(self) -> bool:
        """Whether nobody has to say who he is."""
        return self.find is None and not self._known

    async def enter(self, request: Request, least: str) -> Session:
        """The session of a request that may do what ``least`` may; Refused if it may not."""
        self._check_host(request)
        session = self.sessions.read(request.cookies.get(COOKIE))
        if session is None or (self.is_open and session.person is None):
            session = self.sessions.begin(Person("local", ADMIN) if self.is_open else None)
        if session.person is None and (person := await self._ask_known(request)) is not None:
            session = replace(session, person=person, is_known=True)
        if least == NOBODY:
            return session
        if session.person is None:
            raise Refused(401, "Log in first.")
        if not session.person.may(least):
            raise Refused(403, f"This takes the role {least}; yours is {session.person.role}.")
        return session

    def check_form(self, request: Request, session: Session, token: str) -> None:
        """Refuse a form that did not come from a page of this session, with this address."""
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
            raise Refused(403, "This form came from another site.")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused(403, "This form came from another site.")
        if not self.sessions.is_form_token(session, token):
            raise Refused(
                403, "This form is of an earlier session. Go back, load the page again, and repeat."
            )

    def log_in(self, token: str) -> Person:
        """Whose token it is, as a person; Refused if nobody's, or a producer's."""
        caller = self.find(token.strip()) if self.find is not None else None
        if caller is None:
            raise Refused(403, "No token is like this one.")
        person = Person(caller.name, str(caller.role))
        if not person.may("viewer"):
            raise Refused(403, "This is a producer's token: it sends messages, and sees none.")
        return person

    async def _ask_known(self, request: Request) -> Person | None:
        for authenticator in self._known:
            answer = authenticator(request)
            caller = await answer if inspect.isawaitable(answer) else answer
            if caller is not None:
                return Person(caller.name, str(caller.role))
        return None

    def _check_host(self, request: Request) -> None:
        """Keep out other names for this address (DNS rebinding), and, without tokens, other machines."""
        host = _name_of(request.headers.get("host", ""))
        if self._hosts:
            if host not in self._hosts:
                raise Refused(403, "The dashboard is not reached under this name.")
        elif self.is_open and not _is_loopback(host):
            raise Refused(403, "Without tokens the dashboard is reached as localhost or 127.0.0.1 only.")
        if not self.is_open:
            return
        if any(name in request.headers for name in FORWARDED):
            raise Refused(403, "Without tokens the dashboard is not reached through a proxy.")
        if request.client is not None and not _is_loopback(request.client.host):
            raise Refused(403, "Without tokens the dashboard is reached from this machine only.")


def _name_of(host: str) -> str:
    """A Host header without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
