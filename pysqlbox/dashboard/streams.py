"""Live pages as server-sent events: each view is made once for all who look at it, and sent when it differs.

A page is its own stream: whoever asks for it as ``text/event-stream`` gets its main part, and again whenever
that has changed. All viewers of one view (a store's page with the same query, under the same role) share one
task, which lasts as long as somebody looks. A viewer costs a socket and two small tasks, and the database
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

__all__ = ["STAND_IN", "Full", "Streams", "View", "wants_stream"]

#: The id of the session whose form token stands in a view where each viewer's own belongs.
STAND_IN = "a view"

_KEEP_ALIVE = 15.0
#: A stream ends after so many seconds, so that the browser comes again and is let in, or not, anew.
_LONGEST = 300.0
_EVERY = re.compile(r'<main\b[^>]* data-every="([0-9]+)"')
_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
}


class Full(Exception):
    """There are as many streams, or views, as there may be; a browser then asks again and again instead."""


def wants_stream(accept: str) -> bool:
    """Whether a request is for the stream of a page."""
    return accept.partition(",")[0].partition(";")[0].strip().lower() == "text/event-stream"


@dataclass(eq=False, slots=True)
class View:
    """One page as all see it who may see the same of it."""

    key: Hashable
    make: Callable[[], Awaitable[Response]]
    token: str
    """What stands where a viewer's own form token belongs."""
    task: asyncio.Task[None] | None = None
    viewers: set[_Viewer] = field(default_factory=set)
    status: int = 200
    text: str = ""
    version: int = 0
    every: int = 1
    ended: bool = False


class _Viewer:
    __slots__ = ("changed", "gone")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.gone = False


class Streams:
    """The streams of a dashboard."""

    def __init__(
        self,
        *,
        most: int = 2000,
        most_views: int = 200,
        keep_alive: float = _KEEP_ALIVE,
        longest: float = _LONGEST,
    ) -> None:
        self.most = most
        self._most_views = most_views
        self._keep_alive = keep_alive
        self._longest = longest
        self._views: dict[Hashable, View] = {}
        self._count = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    def open(
        self, key: Hashable, make: Callable[[], Awaitable[Response]], *, stand_in: str, own: str,
        is_let_in: Callable[[], bool],
    ) -> Response:  # fmt: skip
        """The stream of a view, in which ``own`` is put for every ``stand_in``; Full if there are too many.

        ``is_let_in`` is asked again and again: the stream ends when it says no.
        """
        if self._closed or self._count >= self.most:
            raise Full
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= self._most_views:
                raise Full
            view = self._views[key] = View(key, make, stand_in)
        return _Stream(self, view, own, is_let_in)

    def close(self) -> None:
        """End all of them; from any thread."""
        self._closed = True
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and they with it
                loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for view in list(self._views.values()):
            for viewer in list(view.viewers):
                viewer.gone = True
                viewer.changed.set()

    def enter(self, view: View) -> _Viewer:
        """Somebody looks."""
        viewer = _Viewer()
        self._loop = asyncio.get_running_loop()
        view.viewers.add(viewer)
        self._count += 1
        if view.task is None:
            view.task = asyncio.create_task(self._watch(view), name="pysqlbox-view")
        return viewer

    def leave(self, view: View, viewer: _Viewer) -> None:
        """Somebody looks no more; the last one ends the view."""
        view.viewers.discard(viewer)
        self._count -= 1
        if not view.viewers:
            if view.task is not None:
                view.task.cancel()
                view.task = None
            if self._views.get(view.key) is view:
                del self._views[view.key]

    async def _watch(self, view: View) -> None:
        """Make the page again and again, and wake its viewers when it differs."""
        while not view.ended:
            response = await view.make()
            text = bytes(response.body).decode("utf-8", "replace") if response.status_code == 200 else ""
            if (response.status_code, text) != (view.status, view.text) or not view.version:
                view.status, view.text = response.status_code, text
                view.version += 1
                found = _EVERY.search(text)
                if found is not None:
                    view.every = int(found[1])
                # What is over changes no more, and what is not there (any more) does not come either.
                view.ended = not view.every or (not text and response.status_code < 500)
                for viewer in view.viewers:
                    viewer.changed.set()
            await asyncio.sleep(max(1, view.every))


class _Stream(Response):
    """One viewer's stream, as an ASGI answer."""

    def __init__(self, streams: Streams, view: View, own: str, is_let_in: Callable[[], bool]) -> None:
        super().__init__(None, 200, headers=_HEADERS)
        del self.headers["content-length"]
        self._streams = streams
        self._view = view
        self._own = own
        self._is_let_in = is_let_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        view = self._view
        viewer = self._streams.enter(view)
        listening = asyncio.create_task(_until_gone(receive, viewer), name="pysqlbox-viewer")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, "retry: 3000\n\n")
            await self._talk(viewer, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # the browser has gone while it was told something
        finally:
            listening.cancel()
            self._streams.leave(view, viewer)

    async def _talk(self, viewer: _Viewer, send: Send) -> None:
        view = self._view
        told = 0
        ends_at = time.monotonic() + self._streams._longest * random.uniform(0.8, 1.2)  # its owner's
        while not viewer.gone and time.monotonic() < ends_at:
            if not self._is_let_in():
                await self._send(send, "event: over\ndata: login\n\n")
                return
            if told != view.version:
                told = view.version
                await self._send(send, self._event())
                if view.ended:
                    return
            viewer.changed.clear()
            if told != view.version or viewer.gone:
                continue
            try:
                async with asyncio.timeout(self._streams._keep_alive):  # its owner's
                    await viewer.changed.wait()
            except TimeoutError:
                await self._send(send, ":\n\n")

    def _event(self) -> str:
        """What the view is now."""
        view = self._view
        if view.status == 200:
            lines = view.text.replace(view.token, self._own).replace("\r", "").split("\n")
            name = "over" if view.ended else "page"
            return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
        if view.status >= 500:
            return f"event: away\ndata: {view.status}\n\n"
        return f"event: over\ndata: {view.status}\n\n"

    async def _send(self, send: Send, text: str) -> None:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _until_gone(receive: Receive, viewer: _Viewer) -> None:
    """Wait until the browser has closed the connection."""
    with contextlib.suppress(OSError):
        while (await receive())["type"] != "http.disconnect":
            pass
    viewer.gone = True
    viewer.changed.set()
