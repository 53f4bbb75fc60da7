"""The ASGI application: the operations as routes of Starlette."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from pysqlbox.dashboard import Dashboard
from pysqlbox.deployment import Deployment
from pysqlbox.errors import PysqlboxError
from pysqlbox.service import act_routes, health_routes, ledger_routes, look_routes, send_routes
from pysqlbox.service.access import Access, Authenticator
from pysqlbox.service.answers import json_bytes
from pysqlbox.service.behind import Behind
from pysqlbox.service.calls import Calls
from pysqlbox.service.limits import Limits
from pysqlbox.service.openapi import document
from pysqlbox.service.operation import Asked, Operation
from pysqlbox.service.problems import Problem, problem_of, problem_response
from pysqlbox.service.reading import json_body
from pysqlbox.service.schema import check
from pysqlbox.service.tokens import Tokens
from pysqlbox.stores import Stores

__all__ = ["OPERATIONS", "app"]

OPERATIONS: tuple[Operation, ...] = (
    *health_routes.OPERATIONS,
    *ledger_routes.OPERATIONS,
    *send_routes.OPERATIONS,
    *look_routes.OPERATIONS,
    *act_routes.OPERATIONS,
)


def app(
    db: Deployment | Stores,
    *,
    tokens: Tokens | None = None,
    authenticate: Authenticator | Sequence[Authenticator] = (),
    limits: Limits | None = None,
    routes: Iterable[BaseRoute] = (),
    dashboard: bool | Dashboard = True,
) -> Starlette:
    """The service of a deployment or of many stores, to be run by itself or mounted in an application.

    Of many stores, each request says with ``?store=`` which one it is about.

    ``tokens`` says who may come in by a bearer token, ``authenticate`` who is known by something else: it
    gets the request and answers a Caller or None. With neither only this machine is answered. ``routes``
    come after the service's own, and then the pages of the ``dashboard``, which may be one that was made with
    options of its own. Deployment and stores stay their caller's: they are not closed here.
    """
    limits = limits or Limits()
    behind = Behind(db)
    operations = OPERATIONS
    if behind.stores is not None:
        operations = tuple(each.of_store() for each in (*OPERATIONS, look_routes.STORES))
    authenticators = (authenticate,) if callable(authenticate) else authenticate
    calls = Calls(limits)
    find = None if tokens is None else tokens.find
    board = dashboard if isinstance(dashboard, Dashboard) else None
    if dashboard is True:
        board = Dashboard(db, find=find, known=authenticators)

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        del application
        yield
        if board is not None:
            board.close()
        calls.close()
        behind.close()

    made = Starlette(
        routes=[
            Route("/openapi.json", _openapi),
            *_routes(operations),
            *routes,
            *(board.routes if board is not None else ()),
        ],
        exception_handlers={HTTPException: problem_response, Exception: problem_response},
        lifespan=lifespan,
    )
    made.state.openapi = json_bytes(document(operations, limits, has_tokens=tokens is not None))
    made.state.behind = behind
    #: For whoever ends the process: pages that are kept live by events do not end by themselves.
    made.state.end_streams = _nothing if board is None else board.streams.close
    made.state.limits = limits
    made.state.calls = calls
    made.state.access = Access(tokens, *authenticators)
    return made


def _nothing() -> None:
    """There are no streams without a dashboard."""


async def _openapi(request: Request) -> Response:
    return Response(request.app.state.openapi, media_type="application/json")


def _routes(operations: Iterable[Operation]) -> list[BaseRoute]:
    """A route for each path, in the order in which they are tried."""
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in operations:
        by_path[operation.path][operation.method] = operation
    return [
        Route(path, _endpoint(methods), methods=list(methods), include_in_schema=False)
        for path, methods in by_path.items()
    ]


def _endpoint(methods: dict[str, Operation]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        operation = methods.get(request.method) or methods["GET"]  # HEAD is answered like GET
        state = request.app.state
        try:
            return await _answer(operation, request)
        except Problem as problem:
            return problem.response()
        except PysqlboxError as error:
            return problem_of(error, state.limits.retry_after).response()

    return endpoint


async def _answer(operation: Operation, request: Request) -> Response:
    state = request.app.state
    caller = await state.access.require(request, operation.role)
    path = operation.read_path(request.path_params)
    query = operation.read_query(request)
    body = None
    if operation.body is not None:
        body = await json_body(request, state.limits)
        check("", body, operation.body_schema(state.limits) or {})
    asked = Asked(state.behind, state.limits, request, caller, path, query, body)

    def run() -> bytes:
        answer = operation.run(asked)
        return answer.encode() if isinstance(answer, str) else json_bytes(answer)

    content = await state.calls.run(run, asked.store) if operation.asks_database else run()
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(content, media_type=operation.media_type, headers=headers)
