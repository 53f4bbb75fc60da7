"""Acting, all of it audited: dead letters, calling off, new due times, pauses, settings, schedules."""

from __future__ import annotations

from typing import Any

from pysqlbox.messages import Schedule
from pysqlbox.service import actions, by_cause
from pysqlbox.service.boxes import AFTER_ID, BOX, ID, TOPIC
from pysqlbox.service.limits import Limits
from pysqlbox.service.operation import Asked, Operation, Parameter
from pysqlbox.service.roles import Role
from pysqlbox.service.schema import Schema, moment, null_or, of_type

__all__ = ["OPERATIONS"]

_TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
_TIME = {"type": "string", "format": "date-time"}
_AFFECTED = {
    "type": "object",
    "properties": {"affected": {"type": "integer", "minimum": 0}},
    "required": ["affected"],
}
_PART = {
    "type": "object",
    "properties": {
        "affected": {"type": "integer", "minimum": 0},
        "next": {"type": ["integer", "null"], "description": "With a cause: after_id of the next part."},
    },
    "required": ["affected"],
}
_CAUSE = (
    "By a cause of dead/{box}/causes: one bounded part; go on with after_id as long as next is not null."
    " preview counts, and changes nothing."
)
_NAME = Parameter("name", _TEXT, "The schedule's name.")


def _ids(limits: Limits) -> dict[str, Any]:
    return {"type": "array", "items": ID.schema, "minItems": 1, "maxItems": limits.array_length}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _ids_body(limits: Limits) -> Schema:
    return _object({"ids": _ids(limits)}, "ids")


def _dead_body(limits: Limits) -> Schema:
    by_cause_schema = _object(
        {
            "cause": {"type": "string", "minLength": 1, "maxLength": 400},
            "topic": null_or(TOPIC.schema),
            "preview": null_or({"type": "boolean", "description": "Only count them."}),
            "after_id": null_or(AFTER_ID.schema),
        },
        "cause",
    )
    return {"anyOf": [_ids_body(limits), by_cause_schema]}


def _cancel_body(limits: Limits) -> Schema:
    reason = null_or({"type": "string", "maxLength": 16_384})
    return _object({"ids": _ids(limits), "reason": reason}, "ids")


def _reschedule_body(limits: Limits) -> Schema:
    return _object({"ids": _ids(limits), "due_at": null_or(_TIME)}, "ids")


def _given_ids(asked: Asked) -> list[int]:
    return [int(each) for each in asked.body["ids"]]


def _replay(asked: Asked) -> Any:
    if "cause" in asked.body:
        return _by_cause(asked, "replay")
    return {"affected": actions.replay(asked.db, asked.actor, asked.path["box"], _given_ids(asked))}


def _discard(asked: Asked) -> Any:
    if "cause" in asked.body:
        return _by_cause(asked, "discard")
    return {"affected": actions.discard(asked.db, asked.actor, asked.path["box"], _given_ids(asked))}


def _by_cause(asked: Asked, action: str) -> Any:
    body, box = asked.body, asked.path["box"]
    cause, topic, after_id = body["cause"], body.get("topic"), int(body.get("after_id") or 0)
    if body.get("preview"):
        return by_cause.count(asked.db, box, cause, topic, after_id)
    most = asked.limits.array_length
    return by_cause.act(asked.db, asked.actor, action, box, cause, topic, after_id, most)


def _cancel(asked: Asked) -> Any:
    box, reason = asked.path["box"], asked.body.get("reason")
    return {"affected": actions.cancel(asked.db, asked.actor, box, _given_ids(asked), reason)}


def _reschedule(asked: Asked) -> Any:
    given = asked.body.get("due_at")
    due_at = None if given is None else moment("due_at", given)
    box = asked.path["box"]
    return {"affected": actions.reschedule(asked.db, asked.actor, box, _given_ids(asked), due_at)}


def _pause(asked: Asked) -> Any:
    return {"affected": actions.pause(asked.db, asked.actor, asked.path["box"], asked.body.get("topic"))}


def _resume(asked: Asked) -> Any:
    return {"affected": actions.resume(asked.db, asked.actor, asked.path["box"], asked.body.get("topic"))}


def _configure(asked: Asked) -> Any:
    name = asked.body["name"]
    value = actions.configure(asked.db, asked.actor, asked.path["box"], name, _setting(asked.body["value"]))
    return {"name": name, "value": value}


def _setting(value: object) -> str:
    """A setting's value as text; JSON's 10.0 is 10."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _set_schedule(asked: Asked) -> Any:
    given = {name: value for name, value in asked.body.items() if value is not None}
    for name in ("every_seconds", "catch_up", "priority"):
        if name in given:
            given[name] = int(given[name])
    if "every_seconds" in given:
        given["every"] = given.pop("every_seconds")
    if "next_at" in given:
        given["next_at"] = moment("next_at", given["next_at"])
    return actions.set_schedule(asked.db, asked.actor, asked.path["box"], asked.path["name"], **given)


def _remove_schedule(asked: Asked) -> Any:
    actions.remove_schedule(asked.db, asked.actor, asked.path["box"], asked.path["name"])
    return {"affected": 1}


_SCHEDULE_BODY = _object(
    {
        "topic": _TEXT,
        "payload": {
            "description": "Text as it is; any other JSON as its text.",
            "type": ["string", "object", "array", "number", "boolean"],
        },
        "cron": null_or({**_TEXT, "description": "Five fields; this or every_seconds."}),
        "every_seconds": null_or({"type": "integer", "minimum": 1, "maximum": 1_000_000_000}),
        "timezone": null_or({**_TEXT, "description": "Of the cron text, an IANA name."}),
        "next_at": null_or(_TIME),
        "catch_up": null_or({"type": "integer", "minimum": 0, "maximum": 10_000}),
        "enabled": null_or({"type": "boolean"}),
        "group_id": null_or(_TEXT),
        "priority": null_or({"type": "integer", "minimum": -32768, "maximum": 32767}),
        "headers": null_or({"type": "object"}),
    },
    "topic",
    "payload",
)
_TOPIC_BODY = _object({"topic": null_or({**TOPIC.schema, "description": "Null is the whole box."})})

OPERATIONS = (
    Operation(
        "POST", "/v1/messages/{box}/replay", "replay", "act", Role.OPERATOR,
        "Make dead messages claimable again, from attempt 0.",
        _replay,
        description="By ids: all or none, 409 if one is not dead; unknown ids are passed over. " + _CAUSE,
        parameters=(BOX,), body=_dead_body, answer=_PART,
    ),
    Operation(
        "POST", "/v1/messages/{box}/discard", "discard", "act", Role.OPERATOR,
        "Delete dead messages.",
        _discard,
        description=_CAUSE,
        parameters=(BOX,), body=_dead_body, answer=_PART,
    ),
    Operation(
        "POST", "/v1/messages/{box}/cancel", "cancel", "act", Role.OPERATOR,
        "Call off messages that are not over yet, waiting or leased.",
        _cancel,
        parameters=(BOX,), body=_cancel_body, answer=_AFFECTED,
    ),
    Operation(
        "POST", "/v1/messages/{box}/reschedule", "reschedule", "act", Role.OPERATOR,
        "Give waiting messages a new due time; now, if it is null.",
        _reschedule,
        parameters=(BOX,), body=_reschedule_body, answer=_AFFECTED,
    ),
    Operation(
        "POST", "/v1/boxes/{box}/pause", "pause", "act", Role.OPERATOR,
        "Stop handing out a topic, or the whole box; affected is 0 if it was paused already.",
        _pause,
        parameters=(BOX,), body=_TOPIC_BODY, answer=_AFFECTED,
    ),
    Operation(
        "POST", "/v1/boxes/{box}/resume", "resume", "act", Role.OPERATOR,
        "Hand out a topic, or the whole box, again; affected is 0 if it was not paused.",
        _resume,
        parameters=(BOX,), body=_TOPIC_BODY, answer=_AFFECTED,
    ),
    Operation(
        "POST", "/v1/boxes/{box}/configure", "configure", "act", Role.ADMIN,
        "Change a setting of a box; answers the value as it is kept.",
        _configure,
        parameters=(BOX,),
        body=_object({"name": _TEXT, "value": {"type": ["string", "number", "boolean"]}}, "name", "value"),
        answer={
            "type": "object",
            "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
            "required": ["name", "value"],
        },
    ),
    Operation(
        "PUT", "/v1/schedules/{box}/{name:path}", "setSchedule", "act", Role.OPERATOR,
        "Set or replace a schedule: a message that comes again and again.",
        _set_schedule,
        parameters=(BOX, _NAME), body=_SCHEDULE_BODY, answer=of_type(Schedule),
    ),
    Operation(
        "DELETE", "/v1/schedules/{box}/{name:path}", "removeSchedule", "act", Role.OPERATOR,
        "Remove a schedule; what it has enqueued stays.",
        _remove_schedule,
        parameters=(BOX, _NAME), answer=_AFFECTED,
    ),
)  # fmt: skip
