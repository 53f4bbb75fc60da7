"""Looking: what is in the boxes, what died and why, groups, joins, schedules, the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pysqlbox.dashboard.catalog import list_page
from pysqlbox.messages import (
    AuditEntry,
    DeadCause,
    Finding,
    Group,
    InboxDeadLetter,
    Join,
    LedgerKey,
    ListedInboxMessage,
    ListedOutboxMessage,
    OutboxDeadLetter,
    Schedule,
    StoredInboxMessage,
    StoredOutboxMessage,
    TopicStats,
    WorkerSeen,
)
from pysqlbox.service.answers import fields_of
from pysqlbox.service.behind import StoreSeen
from pysqlbox.service.boxes import (
    AFTER_ID,
    BOX,
    ID,
    LIMIT,
    TOPIC,
    box_of,
    items_of,
    lacking,
    page,
    sees_secrets,
    without_secrets,
)
from pysqlbox.service.operation import Asked, Operation, Parameter
from pysqlbox.service.problems import Problem
from pysqlbox.service.roles import Role
from pysqlbox.service.schema import of_type

__all__ = ["OPERATIONS", "STORES"]

_STATUSES = ("Ready", "InProgress", "Seen", "Processing", "Done", "Failed", "Dead", "Expired", "Cancelled")
_JOIN_STATUSES = ("Pending", "Completed", "Failed", "Cancelled")
_KEY_STATUSES = ("Unknown", "Acquired", "Processed")
_UUID = {"type": "string", "format": "uuid"}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
_SECONDS = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}
_FLAG = {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class BoxWorkerSeen(WorkerSeen):
    """Who works on a box."""

    box: str = ""


@dataclass(frozen=True, slots=True)
class BoxTopicStats(TopicStats):
    """The counts of one topic of a box, or of the whole box where ``topic`` is None."""

    box: str = ""
    kind: str = ""


def _stats(asked: Asked) -> Any:
    wanted = asked.query["box"]
    found = []
    for named in asked.db.schema_boxes():
        if wanted in (None, named.name):
            where = {"box": named.name, "kind": named.kind}
            found += [where | fields_of(row) for row in asked.db.box(named.name).stats()]
    if wanted is not None and not found:
        asked.db.box(wanted)  # says that there is none
    return page(found)


def _list(asked: Asked) -> Any:
    query = asked.query
    items, following = list_page(
        box_of(asked), query["status"], topic=query["topic"], group_id=query["group_id"],
        limit=query["limit"], after_id=query["after_id"],
    )  # fmt: skip
    return page(items, following)


def _one(asked: Asked) -> Any:
    return without_secrets(asked, box_of(asked).get(asked.path["id"]))


def _dead(asked: Asked) -> Any:
    query = asked.query
    if query["payloads"] and not sees_secrets(asked):
        raise Problem(403, "payloads are for the role operator")
    letters = box_of(asked).dead_letters(
        limit=query["limit"], after_id=query["after_id"], topic=query["topic"]
    )
    hidden = () if query["payloads"] else ("payload", "headers", "hash")
    following = letters[-1].id if len(letters) == query["limit"] else None
    return page([fields_of(letter, without=hidden) for letter in letters], following)


def _causes(asked: Asked) -> Any:
    return page(box_of(asked).dead_causes(limit=asked.query["limit"]))


def _groups(asked: Asked) -> Any:
    query = asked.query
    return page(box_of(asked).groups(limit=query["limit"], only_blocked=query["only_blocked"]))


def _joins(asked: Asked) -> Any:
    query = asked.query
    found = asked.db.joins.list(
        query["tenant_id"], status=query["status"], limit=query["limit"],
        after=None if query["after"] is None else UUID(query["after"]),
        older_than_seconds=query["older_than_seconds"],
    )  # fmt: skip
    return page(found, found[-1].join_id if len(found) == query["limit"] else None)


def _join(asked: Asked) -> Any:
    return asked.db.joins.get(UUID(asked.path["join_id"]))


def _schedules(asked: Asked) -> Any:
    return page(asked.db.schedules.list(box=asked.path["box"]))


def _ledger(asked: Asked) -> Any:
    query = asked.query
    found = asked.db.ledger.list(
        query["prefix"], status=query["status"], limit=query["limit"], after=query["after"]
    )
    return page(found, found[-1].key if len(found) == query["limit"] else None)


def _workers(asked: Asked) -> Any:
    limit = asked.query["limit"]
    found = [
        {"box": named.name} | fields_of(worker)
        for named in asked.db.schema_boxes()
        for worker in asked.db.box(named.name).workers(limit=limit)
    ]
    return page(found)


def _doctor(asked: Asked) -> Any:
    return page(asked.db.doctor())


def _audit(asked: Asked) -> Any:
    query = asked.query
    found = asked.db.audit.list(
        actor=query["actor"], action=query["action"], limit=query["limit"], before_id=query["before_id"]
    )
    return page(found, found[-1].id if len(found) == query["limit"] else None)


def _stores(asked: Asked) -> Any:
    return page(asked.behind.seen())


#: Only where there are many stores.
STORES = Operation(
    "GET", "/v1/stores", "stores", "look", Role.VIEWER,
    "Every store: whether its database answers, and the counts of its boxes taken together.",
    _stores,
    answer=items_of(StoreSeen, following=None),
    over_all=True,
)  # fmt: skip

OPERATIONS = (
    Operation(
        "GET", "/v1/stats", "stats", "look", Role.VIEWER,
        "Counts by box and topic; a box's total has no topic.",
        _stats,
        queries=(Parameter("box", BOX.schema, "Only this box."),),
        answer=items_of(BoxTopicStats, following=None),
    ),
    Operation(
        "GET", "/v1/messages/{box}", "listMessages", "look", Role.VIEWER,
        "Messages in one status, by id, without payloads.",
        _list,
        description="A page may have fewer items than the limit and still a next one.",
        parameters=(BOX,),
        queries=(
            Parameter(
                "status", {"type": "string", "enum": list(_STATUSES)}, "One of the box.", required=True
            ),
            TOPIC,
            Parameter("group_id", _TEXT, "Only this group's."),
            LIMIT,
            AFTER_ID,
        ),
        answer=items_of(ListedOutboxMessage, ListedInboxMessage),
    ),
    Operation(
        "GET", "/v1/messages/{box}/{id:int}", "getMessage", "look", Role.VIEWER,
        "One message with its status and bookkeeping; payload, headers and hash for operators only.",
        _one,
        parameters=(BOX, ID),
        answer={"anyOf": [lacking(StoredOutboxMessage), lacking(StoredInboxMessage)]},
    ),
    Operation(
        "GET", "/v1/dead/{box}", "listDead", "look", Role.VIEWER,
        "Messages that were given up, have expired or were cancelled, by id.",
        _dead,
        parameters=(BOX,),
        queries=(
            TOPIC, LIMIT, AFTER_ID,
            Parameter("payloads", _FLAG, "With payload, headers and hash; for operators.", default=False),
        ),
        answer=items_of(OutboxDeadLetter, InboxDeadLetter),
    ),
    Operation(
        "GET", "/v1/dead/{box}/causes", "deadCauses", "look", Role.VIEWER,
        "Dead letters by topic and cause, most first: one fault is one item.",
        _causes,
        description="A last item without messages and sample_id tells of older ones, not looked at.",
        parameters=(BOX,),
        queries=(LIMIT,),
        answer=items_of(DeadCause, following=None),
    ),
    Operation(
        "GET", "/v1/groups/{box}", "groups", "look", Role.VIEWER,
        "FIFO groups that have messages, those first that their head has held up longest.",
        _groups,
        parameters=(BOX,),
        queries=(LIMIT, Parameter("only_blocked", _FLAG, "Only those that are held up.", default=False)),
        answer=items_of(Group, following=None),
    ),
    Operation(
        "GET", "/v1/joins", "listJoins", "look", Role.VIEWER,
        "Joins and their counters, the oldest first.",
        _joins,
        queries=(
            Parameter("tenant_id", _TEXT, "Only this tenant's."),
            Parameter("status", {"type": "string", "enum": list(_JOIN_STATUSES)}, "Only these."),
            Parameter("older_than_seconds", _SECONDS, "Only those begun longer ago."),
            LIMIT,
            Parameter("after", _UUID, "The page behind this join."),
        ),
        answer=items_of(Join, following="string"),
    ),
    Operation(
        "GET", "/v1/joins/{join_id}", "getJoin", "look", Role.VIEWER,
        "One join and its counters.",
        _join,
        parameters=(Parameter("join_id", _UUID, "The join."),),
        answer=of_type(Join),
    ),
    Operation(
        "GET", "/v1/schedules/{box}", "listSchedules", "look", Role.VIEWER,
        "Every schedule of an outbox, by name.",
        _schedules,
        parameters=(BOX,),
        answer=items_of(Schedule, following=None),
    ),
    Operation(
        "GET", "/v1/ledger", "listLedger", "look", Role.VIEWER,
        "Keys of the ledger and what is known of them, by key.",
        _ledger,
        queries=(
            Parameter("prefix", {"type": "string", "maxLength": 512}, "Only keys that begin with this."),
            Parameter("status", {"type": "string", "enum": list(_KEY_STATUSES)}, "Only these."),
            LIMIT,
            Parameter("after", {"type": "string", "maxLength": 512}, "The page behind this key."),
        ),
        answer=items_of(LedgerKey, following="string"),
    ),
    Operation(
        "GET", "/v1/workers", "workers", "look", Role.VIEWER,
        "Who works on each box: who says so, holds leases, or was done with something of late.",
        _workers,
        queries=(LIMIT,),
        answer=items_of(BoxWorkerSeen, following=None),
    ),
    Operation(
        "GET", "/v1/doctor", "doctor", "look", Role.VIEWER,
        "What a DBA should know about this deployment: a finding for each thing, and for each check.",
        _doctor,
        answer=items_of(Finding, following=None),
    ),
    Operation(
        "GET", "/v1/audit", "audit", "look", Role.ADMIN,
        "Who changed what, the latest first.",
        _audit,
        queries=(
            Parameter("actor", _TEXT, "Only this one's."),
            Parameter("action", {"type": "string", "minLength": 1, "maxLength": 64}, "Only these."),
            LIMIT,
            Parameter("before_id", ID.schema, "The page before this id."),
        ),
        answer=items_of(AuditEntry),
    ),
)  # fmt: skip
