"""One request as a page's function sees it, and the page that answers it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pysqlbox.dashboard.formatting import key_path
from pysqlbox.dashboard.people import Person
from pysqlbox.dashboard.sessions import Session
from pysqlbox.dashboard.watch import Watch
from pysqlbox.deployment import Deployment
from pysqlbox.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from pysqlbox.dashboard.dashboard import Dashboard

__all__ = ["Ask", "etagged", "whole"]

#: Pages that are about no store.
_OF_ALL = ("assets", "login", "logout")


@dataclass(slots=True)
class Ask:
    """Who asks for what. The person is let in already, and the form is one of ours."""

    dashboard: Dashboard
    request: Request
    session: Session
    watch: Watch | None
    """Of what the page is about; None for pages that are about no deployment."""
    form: Mapping[str, str] = field(default_factory=dict)
    store: str | None = None
    """The key of the store that the page is about, as text; None for the deployment itself."""
    is_bare: bool = False
    """Only the page's main part, for who has the rest already."""

    @property
    def db(self) -> Deployment:
        """The deployment that the page is about."""
        return self.watched.db

    @property
    def watched(self) -> Watch:
        """What keeps the page's figures."""
        assert self.watch is not None  # only the login and the list of stores are about nothing
        return self.watch

    @property
    def person(self) -> Person:
        """Who asks; pages are only for those who are somebody."""
        assert self.session.person is not None
        return self.session.person

    def query(self, name: str) -> str | None:
        """An argument of the address; None if it is missing or empty."""
        return self.request.query_params.get(name) or None

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def number(self, name: str, *, default: int = 0, least: int = 0, most: int = 2**63 - 1) -> int:
        """A number of the address."""
        return whole(name, self.query(name), default=default, least=least, most=most)

    def id(self) -> int:
        """The id in the path."""
        text = self.path("id")
        if not text.isascii() or not text.isdigit() or len(text) > 19:
            raise NotFound("there is no message with this id")
        return int(text)

    def uuid(self, name: str) -> UUID:
        """A uuid in the path."""
        try:
            return UUID(self.path(name))
        except ValueError:
            raise NotFound("there is nothing with this id") from None

    def link(self, page: str, **arguments: object) -> str:
        """The address of a page, of the same store; arguments that are None are left out."""
        if self.store is not None and page.partition("/")[0] not in _OF_ALL:
            page = f"stores/{key_path(self.store)}/{page}"
        given = {name: str(value) for name, value in arguments.items() if value is not None}
        path = f"{self.request.scope.get('root_path', '')}/{quote(page)}"
        return f"{path}?{urlencode(given)}" if given else path

    def page(self, template: str, code: int = 200, **content: Any) -> Response:
        """A page, made of a template."""
        text = self.dashboard.pages.render(template, self, content)
        return etagged(self.request, text, code)

    def go(self, page: str, **arguments: object) -> Response:
        """Send the browser to a page, after a form was done."""
        return RedirectResponse(self.link(page, **arguments), 303)

    def act(self, action: str, subject: str, change: Callable[[Any], int]) -> int:
        """Change something, on the connection that ``change`` gets, and note it, both or neither."""
        with self.db.transaction() as connection:
            affected = change(connection)
            if affected:
                self.dashboard.audit(self.db, self.person.name, action, subject, affected, connection)
        self.watched.shared.forget()
        return affected


def whole(name: str, text: str | None, *, default: int, least: int, most: int) -> int:
    """A whole number out of an address or a form."""
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
        raise InvalidArgument(f"{name}: must be a whole number from {least} to {most}")
    return int(text)


def etagged(request: Request, text: str, status: int) -> Response:
    """A page; nothing at all if the browser that polls it has this very one."""
    body = text.encode("utf-8", "backslashreplace")
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-store"}
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers=headers, media_type="text/html; charset=utf-8")
