"""The inbox contract's microservice, version 1: the idempotency ledger by HTTP, in camelCase."""

from __future__ import annotations

from typing import Any

import pysqlbox
from pysqlbox.service.operation import Asked, Operation, Parameter
from pysqlbox.service.roles import Role
from pysqlbox.service.schema import null_or

__all__ = ["LEASE_SECONDS", "OPERATIONS"]

LEASE_SECONDS = 60
"""Of a claim that names no lease, as the document says: 30 to 120 seconds."""

_KEY = {"type": "string", "minLength": 1, "maxLength": 512}
_LEASE_ID = {"type": "string", "format": "uuid"}
_TIME = {"type": "string", "format": "date-time"}
_LEASE = {"type": "integer", "minimum": 1, "maximum": 86400}
_COUNT = {"type": "integer", "minimum": 0}
_AFFECTED = {"type": "object", "properties": {"affected": _COUNT}, "required": ["affected"]}


def _try_begin(asked: Asked) -> Any:
    body = asked.body
    lease = body.get("leaseSeconds")
    seconds = LEASE_SECONDS if lease is None else int(lease)
    # Who asks is kept with the key, so that the ledger is its own audit log.
    owner = body.get("owner") or asked.actor
    claim = asked.db.ledger.try_begin(body["key"], owner=owner, lease_seconds=seconds)
    answer: dict[str, Any] = {"status": claim.status}
    if claim.lease_id is not None:
        answer["leaseId"] = claim.lease_id
    if claim.expires_at is not None:
        answer["expiresAt"] = claim.expires_at
    return answer


def _mark_processed(asked: Asked) -> Any:
    return {"affected": asked.db.ledger.mark_processed(asked.body["key"], asked.body["leaseId"])}


def _release(asked: Asked) -> Any:
    return {"affected": asked.db.ledger.release(asked.body["key"], asked.body["leaseId"])}


def _get(asked: Asked) -> Any:
    entry = asked.db.ledger.get(asked.path["key"])
    answer: dict[str, Any] = {
        "status": entry.status,
        "attempts": entry.attempts,
        "firstSeen": entry.first_seen_at,
        "lastSeen": entry.last_seen_at,
    }
    if entry.lease_until is not None:
        answer["leaseUntil"] = entry.lease_until
    return answer


def _about(asked: Asked) -> Any:
    limits = asked.limits
    return {
        "service": "pysqlbox",
        "version": pysqlbox.__version__,
        "contract": "v1",
        "auth": asked.request.app.state.access.hint,
        "limits": {
            "bodyBytes": limits.body_bytes,
            "arrayLength": limits.array_length,
            "keyLength": _KEY["maxLength"],
            "leaseSeconds": {
                "default": LEASE_SECONDS,
                "minimum": _LEASE["minimum"],
                "maximum": _LEASE["maximum"],
            },
        },
    }


def _lease_body(lease_id: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"key": _KEY, "leaseId": lease_id},
        "required": ["key", "leaseId"],
        "additionalProperties": False,
    }


OPERATIONS = (
    Operation(
        "GET", "/v1/inbox", "inboxAbout", "inbox", None,
        "The service's version, its limits, and whether a token is needed.",
        _about,
        answer={
            "type": "object",
            "properties": {
                "service": {"type": "string"},
                "version": {"type": "string"},
                "contract": {"type": "string"},
                "auth": {"type": "string", "enum": ["none", "bearer"]},
                "limits": {"type": "object"},
            },
            "required": ["service", "version", "contract", "auth", "limits"],
        },
        asks_database=False,
    ),
    Operation(
        "POST", "/v1/inbox/try-begin", "inboxTryBegin", "inbox", Role.PRODUCER,
        "Try to become the one who handles a key.",
        _try_begin,
        description=(
            "Of any number of callers exactly one gets Acquired; the others are told Busy, or Processed once"
            f" it is done. Without leaseSeconds the lease is {LEASE_SECONDS} seconds."
        ),
        body={
            "type": "object",
            "properties": {
                "key": _KEY,
                "owner": null_or({"type": "string", "minLength": 1, "maxLength": 255}),
                "leaseSeconds": null_or(_LEASE),
            },
            "required": ["key"],
            "additionalProperties": False,
        },
        answer={
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ["Acquired", "Processed", "Busy"]},
                "leaseId": _LEASE_ID,
                "expiresAt": _TIME,
            },
            "required": ["status"],
        },
    ),
    Operation(
        "POST", "/v1/inbox/mark-processed", "inboxMarkProcessed", "inbox", Role.PRODUCER,
        "Note that a key is done.",
        _mark_processed,
        description=(
            "affected is 0 where the lease is not the key's any more. With leaseId null the key is marked"
            " whoever holds it."
        ),
        body=_lease_body(null_or(_LEASE_ID)),
        answer=_AFFECTED,
    ),
    Operation(
        "POST", "/v1/inbox/release", "inboxRelease", "inbox", Role.PRODUCER,
        "Let go of a key, so that another may begin it.",
        _release,
        description="affected is 0 where the lease is not the key's any more.",
        body=_lease_body(_LEASE_ID),
        answer=_AFFECTED,
    ),
    Operation(
        "GET", "/v1/inbox/{key:path}", "inboxGet", "inbox", Role.PRODUCER,
        "What is known of a key; nothing at all is the status Unknown.",
        _get,
        parameters=(Parameter("key", _KEY, "The key, percent-encoded."),),
        answer={
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ["Unknown", "Acquired", "Processed"]},
                "attempts": _COUNT,
                "firstSeen": null_or(_TIME),
                "lastSeen": null_or(_TIME),
                "leaseUntil": _TIME,
            },
            "required": ["status", "attempts", "firstSeen", "lastSeen"],
        },
    ),
)  # fmt: skip
