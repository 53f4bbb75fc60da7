"""Typed messages: classes that say what becomes of their objects, and handlers that take objects.

:mod:`declaring` reads a class, :mod:`publishing` enqueues its objects, :mod:`handlers` finds what a handler
takes, :mod:`decoding` makes it from a payload.
"""

from __future__ import annotations

from pysqlbox.typed.declaring import (
    HasCollapseKey,
    HasDeduplicationId,
    HasExternalId,
    HasGroupId,
    HasReceivedAt,
    declared_topic,
    message,
    topic_of,
)
from pysqlbox.typed.decoding import decode
from pysqlbox.typed.errors import Undecodable
from pysqlbox.typed.handlers import batch_decoder_for, decoder_for

__all__ = [
    "HasCollapseKey",
    "HasDeduplicationId",
    "HasExternalId",
    "HasGroupId",
    "HasReceivedAt",
    "Undecodable",
    "batch_decoder_for",
    "declared_topic",
    "decode",
    "decoder_for",
    "message",
    "topic_of",
]
