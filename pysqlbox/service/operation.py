"""A route of the service: what OpenAPI says of it, the least role it asks for, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from starlette.requests import Request

from pysqlbox.deployment import Deployment
from pysqlbox.errors import InvalidArgument
from pysqlbox.service.behind import Behind
from pysqlbox.service.limits import Limits
from pysqlbox.service.roles import Role
from pysqlbox.service.schema import Schema, check, from_text
from pysqlbox.service.tokens import Caller

__all__ = ["STORE", "Asked", "Operation", "Parameter"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or a query."""

    name: str
    schema: Schema
    description: str
    required: bool = False
    default: Any = None


#: Which of many stores a request is about.
STORE = Parameter(
    "store", {"type": "string", "minLength": 1, "maxLength": 255}, "The key of the store.", required=True
)


@dataclass(slots=True)
class Asked:
    """A request whose caller may make it and whose arguments fit the operation's schemas."""

    behind: Behind
    limits: Limits
    request: Request
    caller: Caller | None
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Any

    @property
    def db(self) -> Deployment:
        """The deployment that the request is about; to be asked for in a thread, for its source may block."""
        return self.behind.deployment(self.store)

    @property
    def store(self) -> str | None:
        """The key of the store that the request is about, None where there is one deployment."""
        found: str | None = self.query.get(STORE.name)
        return found

    @property
    def actor(self) -> str:
        """The name for the audit log."""
        return self.caller.name if self.caller is not None else "anybody"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``run`` blocks, and is called in a thread with a database to ask."""

    method: str
    path: str
    name: str
    """The operationId."""
    tag: str
    role: Role | None
    """The least role; None is for everybody."""
    summary: str
    run: Callable[[Asked], Any]
    answer: Schema
    body: Schema | Callable[[Limits], Schema] | None = None
    parameters: tuple[Parameter, ...] = ()
    queries: tuple[Parameter, ...] = ()
    description: str = ""
    headers: tuple[Parameter, ...] = ()
    media_type: str = "application/json"
    """Of the answer; with another one ``run`` answers text."""
    asks_database: bool = True
    """Without it ``run`` is quick and is called where the requests are read."""
    over_all: bool = False
    """Where there are many stores it is about all of them, not about one."""

    def of_store(self) -> Self:
        """The same where there are many stores: a request that asks a database says which one's."""
        return (
            replace(self, queries=(STORE, *self.queries))
            if self.asks_database and not self.over_all
            else self
        )

    def read_path(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The path's parameters, checked."""
        values = {}
        for parameter in self.parameters:
            value = found[parameter.name]
            if isinstance(value, str):
                value = from_text(parameter.name, value, parameter.schema)
            else:
                check(parameter.name, value, parameter.schema)
            values[parameter.name] = value
        return values

    def read_query(self, request: Request) -> dict[str, Any]:
        """The query's parameters, checked; one that the operation does not know is refused."""
        known = {parameter.name: parameter for parameter in self.queries}
        values = {name: parameter.default for name, parameter in known.items()}
        for name, text in request.query_params.multi_items():
            if name not in known:
                raise InvalidArgument(f"{name!a}: is no parameter of this path; leave it out")
            if len(request.query_params.getlist(name)) > 1:
                raise InvalidArgument(f"{name}: must not be given twice")
            values[name] = from_text(name, text, known[name].schema)
        for name, parameter in known.items():
            if parameter.required and values[name] is None:
                raise InvalidArgument(f"{name}: is missing, and must be given")
        return values

    def body_schema(self, limits: Limits) -> Schema | None:
        """The schema of the body under these limits."""
        return self.body(limits) if callable(self.body) else self.body
