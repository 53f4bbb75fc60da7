"""Logging in with a token, once; and out."""

from __future__ import annotations

import logging

from starlette.responses import RedirectResponse, Response

from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.gate import Refused
from pysqlbox.dashboard.people import NOBODY

__all__ = ["ENTRIES"]

_log = logging.getLogger("pysqlbox.dashboard")


def show(ask: Ask) -> Response:
    """The form."""
    if ask.session.person is not None:
        return ask.go("")
    return ask.page("login.html", title="Log in", next=ask.query("next") or "", refused=None)


def log_in(ask: Ask) -> Response:
    """Take the token, and give a new session for it."""
    wanted = ask.form.get("next", "")
    try:
        person = ask.dashboard.gate.log_in(ask.form.get("token", ""))
    except Refused as refused:
        client = ask.request.client
        _log.warning("a login from %s was refused: %s", client.host if client else "a socket", refused)
        return ask.page("login.html", 403, title="Log in", next=wanted, refused=refused.detail)
    _log.info("%s, %s, has logged in", person.name, person.role)
    sessions = ask.dashboard.gate.sessions
    sessions.end(ask.session)
    ask.session = sessions.begin(person)
    return RedirectResponse(ask.link("") + _local(wanted), 303)


def log_out(ask: Ask) -> Response:
    """End the session, on the server too."""
    sessions = ask.dashboard.gate.sessions
    sessions.end(ask.session)
    ask.session = sessions.begin(None)
    return ask.go("login")


def _local(path: str) -> str:
    """Where to go after the login: a page of ours behind the first slash, and no other site's."""
    path = path.lstrip("/")
    return path if path.isascii() and path.isprintable() and "\\" not in path else ""


ENTRIES = (
    ("GET", "/login", NOBODY, show),
    ("POST", "/login", NOBODY, log_in),
    ("POST", "/logout", NOBODY, log_out),
)
