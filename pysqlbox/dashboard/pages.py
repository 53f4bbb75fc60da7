"""The templates and the files that come with the package, and nothing from anywhere else."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2
from starlette.responses import Response

from pysqlbox.dashboard.formatting import age, ago, count, key_path, pack, rate, visible, when
from pysqlbox.dashboard.sparkline import HEIGHT, WIDTH, points

if TYPE_CHECKING:
    from pysqlbox.dashboard.ask import Ask

__all__ = ["Pages", "asset_response"]

_TYPES = {
    "style.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

#: The pages in the navigation, with the least role for each.
NAVIGATION = (
    ("", "Overview", "viewer"),
    ("topics", "Topics", "viewer"),
    ("messages", "Messages", "viewer"),
    ("dead", "Dead letters", "viewer"),
    ("groups", "Groups", "viewer"),
    ("joins", "Joins", "viewer"),
    ("schedules", "Schedules", "viewer"),
    ("ledger", "Ledger", "viewer"),
    ("workers", "Workers", "viewer"),
    ("doctor", "Doctor", "viewer"),
    ("audit", "Audit", "admin"),
)


class Pages:
    """Renders templates. Everything that is printed is escaped, and control characters are made visible."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("pysqlbox.dashboard"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            age=age, ago=ago, count=count, key_path=key_path, pack=pack, rate=rate, when=when
        )
        self._environment.globals.update(points=points, spark_width=WIDTH, spark_height=HEIGHT)

    def render(self, template: str, ask: Ask, content: dict[str, Any]) -> str:
        """A page as text."""
        person = ask.session.person
        watches = ask.dashboard.watches
        return self._environment.get_template(template).render(
            **content,
            link=ask.link,
            asset=lambda name: ask.link(f"assets/{name}", v=_version(name)),
            person=person,
            may=lambda least: person is not None and person.may(least),
            form_token=ask.dashboard.gate.sessions.form_token(ask.session),
            is_open=ask.dashboard.gate.is_open,
            navigation=NAVIGATION if watches is None or ask.store is not None else (),
            stores=None if watches is None else watches.keys(),
            store=ask.store,
            home=f"{ask.request.scope.get('root_path', '')}/",
            here=ask.request.url.path,
            here_page=_page_of(ask),
            is_bare=ask.is_bare,
            place=None if ask.watch is None or ask.store is not None else ask.db.store,
            said=_said(ask),
        )


#: What a page says after a form was done; the address carries only the key and a number.
_SAID = {
    "replayed": "Claimable again: {}.",
    "discarded": "Deleted: {}.",
    "cancelled": "Cancelled: {}.",
    "rescheduled": "Due now: {}.",
    "paused": "Paused: nothing of it is handed out until it is resumed.",
    "resumed": "Resumed.",
    "join": "The join was cancelled.",
    "no-join": "Nothing was changed: the join was over already.",
    "removed": "The schedule was removed.",
    "stop": "The run ends after the piece it is at.",
}


def _page_of(ask: Ask) -> str:
    """The page of the navigation that a request is below: ``messages`` of ``/stores/a/messages/outbox/1``."""
    path = ask.request.url.path.removeprefix(ask.link("")).partition("/")[0]
    return path if any(path == page for page, _, _ in NAVIGATION) else ""


def _said(ask: Ask) -> str | None:
    said = _SAID.get(ask.query("said") or "")
    number = ask.query("n") or ""
    return None if said is None else said.format(number if number.isdigit() and len(number) < 12 else "some")


@cache
def _asset(name: str) -> bytes:
    return files("pysqlbox.dashboard").joinpath("assets", name).read_bytes()


@cache
def _version(name: str) -> str:
    return hashlib.sha256(_asset(name)).hexdigest()[:12]


def asset_response(name: str) -> Response | None:
    """A file of the package; None if there is none of that name."""
    kind = _TYPES.get(name)
    if kind is None:
        return None
    headers = {"cache-control": "public, max-age=86400", "content-type": kind}
    return Response(_asset(name), headers=headers)
