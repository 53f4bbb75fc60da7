"""The names of OpenTelemetry's messaging conventions, release 1.44; a test compares them with their model."""

from __future__ import annotations

from typing import Final

__all__ = ["OPERATION_TYPES", "SYSTEM"]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM: Final = "pysqlbox"

MESSAGING_SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION_NAME: Final = "messaging.destination.name"
BATCH_MESSAGE_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

#: What the conventions leave to each system, in its own namespace.
BOX: Final = "messaging.pysqlbox.box"
STORE: Final = "messaging.pysqlbox.store"
ATTEMPT: Final = "messaging.pysqlbox.attempt"
OUTCOME: Final = "messaging.pysqlbox.outcome"
SCHEDULE: Final = "messaging.pysqlbox.schedule"

OPERATION_TYPES: Final = ("create", "send", "receive", "process", "settle")

OPERATION_DURATION: Final = "messaging.client.operation.duration"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
#: Their units and instruments.
METRICS: Final = {
    OPERATION_DURATION: ("histogram", "s"),
    SENT_MESSAGES: ("counter", "{message}"),
    CONSUMED_MESSAGES: ("counter", "{message}"),
    PROCESS_DURATION: ("histogram", "s"),
}
