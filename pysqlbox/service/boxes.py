"""What the routes of boxes have in common."""

from __future__ import annotations

import dataclasses
from typing import Any

from pysqlbox.boxes import AnyBox
from pysqlbox.service.answers import fields_of
from pysqlbox.service.operation import Asked, Parameter
from pysqlbox.service.roles import Role
from pysqlbox.service.schema import of_type

__all__ = [
    "AFTER_ID",
    "BOX",
    "ID",
    "LIMIT",
    "PAGE",
    "SECRET",
    "TOPIC",
    "box_of",
    "items_of",
    "lacking",
    "page",
    "sees_secrets",
    "without_secrets",
]

PAGE = 1000
"""Rows in one answer at most."""

#: What a viewer does not see: the sender's words, and their digest.
SECRET = ("payload", "headers", "hash")

BOX = Parameter(
    "box", {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,29}$"}, "The box's name.", required=True
)
ID = Parameter("id", {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}, "The message's id in its box.")
TOPIC = Parameter("topic", {"type": "string", "minLength": 1, "maxLength": 255}, "Only this topic.")
LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": PAGE}, "How many at most.", default=100
)
AFTER_ID = Parameter(
    "after_id", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "The page behind this id.", default=0
)


def box_of(asked: Asked) -> AnyBox:
    """The box that the path names."""
    return asked.db.box(asked.path["box"])


def sees_secrets(asked: Asked) -> bool:
    """Whether the caller may see payloads and headers."""
    return asked.caller is not None and asked.caller.role.may(Role.OPERATOR)


def without_secrets(asked: Asked, value: Any) -> dict[str, Any]:
    """A message, without what this caller may not see."""
    return fields_of(value, without=() if sees_secrets(asked) else SECRET)


def page(items: list[Any], following: object = None) -> dict[str, Any]:
    """A page; ``next`` is what brings the one behind it, null at the end."""
    return {"items": items, "next": following}


def items_of(*types: type, following: str | None = "integer") -> dict[str, Any]:
    """The schema of a page of such items."""
    schemas = [lacking(each) for each in types]
    items = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    properties: dict[str, Any] = {"items": {"type": "array", "items": items}}
    properties["next"] = {"type": [following, "null"] if following else "null"}
    return {"type": "object", "properties": properties, "required": ["items", "next"]}


def lacking(kind: type) -> dict[str, Any]:
    """The schema of a type whose secrets may not be there."""
    found = of_type(kind)
    names = {field.name for field in dataclasses.fields(kind)} & set(SECRET)
    return found | {"required": [name for name in found["required"] if name not in names]}
