"""A box of whichever kind, as a deployment's ``box`` answers it."""

from __future__ import annotations

from pysqlbox.inbox import AsyncInbox, Inbox
from pysqlbox.outbox import AsyncOutbox, Outbox

__all__ = ["AnyAsyncBox", "AnyBox"]

AnyBox = Outbox | Inbox
AnyAsyncBox = AsyncOutbox | AsyncInbox
