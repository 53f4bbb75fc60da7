"""The OpenAPI 3.1 document of the operations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pysqlbox
from pysqlbox.service.limits import Limits
from pysqlbox.service.operation import Operation, Parameter

__all__ = ["document"]

_PROBLEM = {
    "type": "object",
    "description": "RFC 9457; name is the error's name.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "name": {"type": "string", "examples": ["InvalidArgument", "NotFound", "InvalidState"]},
    },
    "required": ["type", "title", "status", "detail", "name"],
}
_MEANINGS = {
    400: "The request is malformed: an argument is missing, unknown, or breaks a rule.",
    401: "A valid token is needed.",
    403: "The token's role does not suffice.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "The step is not allowed in this state.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    500: "Something went wrong in the service.",
    503: "The database is away, or slow; come again after Retry-After seconds.",
}
_TAGS = {
    "inbox": "The idempotency ledger: once per key.",
    "send": "Messages in.",
    "look": "What is there.",
    "act": "Changing what is there; each change is noted in the audit log.",
    "health": "For whoever keeps the service running.",
}


def document(operations: Iterable[Operation], limits: Limits, *, has_tokens: bool) -> dict[str, Any]:
    """The document; security is only in it where tokens are asked for."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, limits, has_tokens)
    components: dict[str, Any] = {"schemas": {"Problem": _PROBLEM}}
    if has_tokens:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pysqlbox",
            "version": pysqlbox.__version__,
            "description": "Outbox, inbox, joins and idempotency ledger of a database.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": components,
    }


def _operation(operation: Operation, limits: Limits, has_tokens: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": _responses(operation, has_tokens),
    }
    if operation.description:
        made["description"] = operation.description
    parameters = [
        *(_parameter(each, "path") for each in operation.parameters),
        *(_parameter(each, "query") for each in operation.queries),
        *(_parameter(each, "header") for each in operation.headers),
    ]
    if parameters:
        made["parameters"] = parameters
    schema = operation.body_schema(limits)
    if schema is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.role is not None:
        made["x-role"] = str(operation.role)
        if has_tokens:
            made["security"] = [{"bearer": []}]
    return made


def _parameter(parameter: Parameter, where: str) -> dict[str, Any]:
    schema = dict(parameter.schema)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": where,
        "description": parameter.description,
        "required": where == "path" or parameter.required,
        "schema": schema,
    }


def _responses(operation: Operation, has_tokens: bool) -> dict[str, Any]:
    kind = operation.media_type.partition(";")[0]
    content: dict[str, Any] = {kind: {"schema": operation.answer}}
    found: dict[str, Any] = {"200": {"description": "What was asked for.", "content": content}}
    statuses = [400, 500]
    if operation.asks_database:
        statuses.append(503)
    if operation.role is not None:
        statuses += [401, 403] if has_tokens else [403]
    if operation.parameters or operation.queries:
        statuses.append(404)
    if operation.body is not None:
        statuses += [408, 413, 415]
    if operation.tag == "act":
        statuses.append(409)
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status in sorted(statuses):
        found[str(status)] = {"description": _MEANINGS[status], "content": content}
        if status == 503:
            seconds = {"description": "Seconds.", "schema": {"type": "integer"}}
            found[str(status)] = {**found[str(status)], "headers": {"Retry-After": seconds}}
    return found
