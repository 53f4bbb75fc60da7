"""The dashboard: its routes, and what happens around each page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pysqlbox.dashboard import dead, flows, health, login, messages, overview, several
from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.formatting import path_key
from pysqlbox.dashboard.gate import Authenticator, Gate, Refused
from pysqlbox.dashboard.lanes import Lanes, TooMany
from pysqlbox.dashboard.masking import MASKED_FIELDS, Masking
from pysqlbox.dashboard.pages import Pages, asset_response
from pysqlbox.dashboard.people import Caller, Person
from pysqlbox.dashboard.runs import Run, Runs
from pysqlbox.dashboard.sessions import COOKIE, Session, Sessions
from pysqlbox.dashboard.several import Watches
from pysqlbox.dashboard.streams import STAND_IN, Full, Streams, wants_stream
from pysqlbox.dashboard.watch import Watch
from pysqlbox.deployment import Deployment
from pysqlbox.errors import (
    AccessDenied,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)
from pysqlbox.stores import Stores
from pysqlbox.wording import counted

__all__ = ["Dashboard"]

_log = logging.getLogger("pysqlbox.dashboard")

Handler = Callable[[Ask], Response]
#: Method, path, the least role, and the function that answers.
Entry = tuple[str, str, str, Handler]

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Under no-referrer a browser would send its own forms without their origin.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_LONGEST_FORM = 65_536
#: Pages that are with the database at once, and that wait; the other routes have threads of their own.
_THREADS, _WAITING = 4, 500
#: The pages of a deployment, which each of several stores has too.
_PAGES: Sequence[Entry] = (
    *overview.ENTRIES,
    *messages.ENTRIES,
    *dead.ENTRIES,
    *flows.ENTRIES,
    *health.ENTRIES,
)
_OF_STORES = [(method, f"/stores/{{store}}{path}", least, handler) for method, path, least, handler in _PAGES]
_ENTRIES: Sequence[Entry] = (*login.ENTRIES, *_PAGES)
#: Where there are stores.
_STORES_ENTRIES: Sequence[Entry] = (*login.ENTRIES, *several.ENTRIES, *_OF_STORES)

_STATUS: Mapping[type[PysqlboxError], int] = {
    InvalidArgument: 400,
    NotFound: 404,
    InvalidState: 409,
    DatabaseUnavailable: 503,
    SchemaMismatch: 503,
    AccessDenied: 503,
}


class Dashboard:
    """The pages of one deployment, or of each of many stores, as routes for Starlette."""

    def __init__(
        self,
        db: Deployment | Stores,
        *,
        find: Callable[[str], Caller | None] | None = None,
        known: Sequence[Authenticator] = (),
        boxes: Sequence[str] | None = None,
        masked_fields: Collection[str] = MASKED_FIELDS,
        secret: bytes | None = None,
        streams: int = 2000,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        """``find`` tells whose token it is; ``known`` are asked, with the request, for those who need none.

        Without both only this machine is let in, and may do anything.

        Stores have the same pages each, behind one that lists them. ``boxes`` are shown in place of all. Of
        payloads and headers the ``masked_fields`` stay hidden from everybody. ``secret`` signs the
        sessions; processes that serve one address share it. ``streams`` is how many pages may be kept live by
        events at a time; those above it ask again and again.
        """
        self.gate = Gate(Sessions(secret), find, known, allowed_hosts)
        self.masking = Masking(masked_fields)
        self.pages = Pages()
        #: Of the one deployment; of many stores each has its own.
        self.watch: Watch | None = None
        self.watches: Watches | None = None
        if isinstance(db, Stores):
            self.watches = Watches(db, boxes)
        else:
            self.watch = Watch(db, boxes)
        self.runs = Runs(self._change)
        self.streams = Streams(most=streams)
        #: How long a page waits for the database.
        self.call_seconds = 30.0
        self._lanes = Lanes(_THREADS, _WAITING, name="pysqlbox-dashboard-page")
        entries = _ENTRIES if self.watches is None else _STORES_ENTRIES
        self.routes = [self._route(*entry) for entry in entries]
        self.routes.append(Route("/assets/{name}", self._asset, methods=["GET"]))

    def audit(
        self, db: Deployment, who: str, action: str, subject: str, affected: int, connection: Any = None
    ) -> None:
        """Note a change in its transaction; or a look at what is hidden, which has none."""
        _log.info("%s: %s %s: %s [%s]", who, action, subject, affected, db.store)
        text = subject if len(subject) <= 512 else subject[:511] + "\N{HORIZONTAL ELLIPSIS}"
        db.audit.write(who, action, subject=text, affected=affected, connection=connection)

    def _change(self, run: Run, ids: list[int]) -> int:
        """One piece of a run."""
        box = run.box
        change = box.replay if run.action == "replay" else box.discard
        with box.deployment.transaction() as connection:
            affected = change(ids, connection=connection)
            if affected:
                subject = f"box {box.name}, dead letters from {ids[0]} on: {run.cause}"
                self.audit(box.deployment, run.who, run.action, subject, affected, connection)
        return affected

    def close(self) -> None:
        """End the threads; deployment and stores are their owner's."""
        self.streams.close()
        self._lanes.close(wait=False)
        self.runs.close()
        for each in (self.watch, self.watches):
            if each is not None:
                each.close()

    def _route(self, method: str, path: str, least: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return await self._answer(request, least, handler)

        return Route(path, endpoint, methods=[method], name=f"dashboard {method} {path}")

    async def _asset(self, request: Request) -> Response:
        found = asset_response(request.path_params["name"])
        return _with_headers(found or Response("there is no such file", 404, media_type="text/plain"))

    async def _answer(self, request: Request, least: str, handler: Handler) -> Response:
        try:
            session = await self.gate.enter(request, least)
            store = request.path_params.get("store")
            ask = Ask(self, request, session, self.watch, store=None if store is None else path_key(store))
            if request.method == "POST":
                ask.form = await _form_of(request)
                self.gate.check_form(request, session, ask.form.get("form_token", ""))
            if least and request.method == "GET" and wants_stream(request.headers.get("accept", "")):
                response = self._stream(ask, handler)
            else:
                response = await self._page(ask, handler)
        except Refused as refused:
            return _with_headers(self._refuse(request, refused))
        self._keep_session(request, ask.session, response)
        return _with_headers(response)

    def _stream(self, ask: Ask, handler: Handler) -> Response:
        """The page as a stream of itself, made once for all who may see the same of it."""
        sessions, request, person = self.gate.sessions, ask.request, ask.person
        anybody = Session(STAND_IN, Person("", person.role), 0, 0)
        viewed = Ask(self, request, anybody, ask.watch, store=ask.store, is_bare=True)
        cookie = request.cookies.get(COOKIE)
        stays = ask.session.is_known or self.gate.is_open

        async def make() -> Response:
            try:
                return await self._page(viewed, handler)
            except Exception:  # noqa: BLE001  # its viewers are told; asking again may do better
                _log.exception("GET %s: could not be kept live", request.url.path)
                return Response(status_code=500)

        key = (request.url.path, tuple(sorted(request.query_params.multi_items())), person.role)
        try:
            return self.streams.open(
                key, make, stand_in=sessions.form_token(viewed.session), own=sessions.form_token(ask.session),
                is_let_in=lambda: stays or sessions.read(cookie) is not None,
            )  # fmt: skip
        except Full:
            text = "as many pages as may be are live"
            return Response(text, 503, headers={"retry-after": "10"}, media_type="text/plain")

    async def _page(self, ask: Ask, handler: Handler) -> Response:
        """A page, made in one of a few threads; one that takes too long keeps its own."""
        try:
            async with asyncio.timeout(self.call_seconds):
                return await asyncio.wrap_future(
                    self._lanes.submit(lambda: self._run(handler, ask), ask.store)
                )
        except TooMany:
            return self._failed(ask, DatabaseUnavailable("too many pages are waiting for the database"))
        except TimeoutError:
            text = f"the database did not answer within {counted(self.call_seconds, 'second')}"
            return self._failed(ask, DatabaseUnavailable(text))
        except PysqlboxError as error:
            return self._failed(ask, error)

    def _run(self, handler: Handler, ask: Ask) -> Response:
        if ask.store is not None and self.watches is not None:
            try:
                ask.watch = self.watches.get(ask.store)
            except NotFound:
                ask.store = None  # the page that says so leads elsewhere
                raise
        return handler(ask)

    def _failed(self, ask: Ask, error: PysqlboxError) -> Response:
        """A page that says what went wrong, and what to do."""
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        if status >= 500:
            _log.warning("%s %s: %s", ask.request.method, ask.request.url.path, error)
        response = ask.page("error.html", status, title="Error", error=error, kind=type(error).__name__)
        if status == 503:
            response.headers["retry-after"] = "2"
        return response

    def _refuse(self, request: Request, refused: Refused) -> Response:
        polls = request.headers.get("x-pysqlbox-live") is not None
        if refused.status != 401 or polls or request.method != "GET":
            headers = {"cache-control": "no-store"}
            return Response(refused.detail, refused.status, headers=headers, media_type="text/plain")
        root = request.scope.get("root_path", "")
        wanted = request.url.path.removeprefix(root) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{root}/login?next={quote(wanted, safe='')}", 303)

    def _keep_session(self, request: Request, session: Session, response: Response) -> None:
        """Set the cookie of a new session, or of one that is used for longer."""
        sessions = self.gate.sessions
        before = sessions.read(request.cookies.get(COOKIE))
        if before is not None and before.id == session.id:
            renewed = sessions.renewed(session)
            if renewed is None:
                return
            session = renewed
        response.set_cookie(
            COOKIE,
            sessions.cookie(session),
            path=f"{request.scope.get('root_path', '')}/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def _with_headers(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


async def _form_of(request: Request) -> dict[str, str]:
    """The fields of a form; the first of each name."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "A form is sent as application/x-www-form-urlencoded.")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_FORM:
            raise Refused(413, "The form is too large.")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise Refused(400, "The form cannot be read.") from None
    found: dict[str, str] = {}
    for name, value in fields:
        found.setdefault(name, value)
    return found
