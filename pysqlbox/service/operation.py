"""A route of the service: what OpenAPI says of it, the least role it asks for, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from pysqlbox.deployment import Deployment
from pysqlbox.errors import InvalidArgument
from pysqlbox.service.limits import Limits
from pysqlbox.service.roles import Role
from pysqlbox.service.schema import Schema, check, from_text
from pysqlbox.service.tokens import Caller

__all__ = ["Asked", "Operation", "Parameter"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or a query."""

    name: str
    schema: Schema
    description: str
    required: bool = False
    default: Any = None


@dataclass(slots=True)
class Asked:
    """A request whose caller may make it and whose arguments fit the operation's schemas."""

    db: Deployment
    limits: Limits
    request: Request
    caller: Caller | None
    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Any

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
