"""Spans and metrics of workers: what they receive, handle and settle."""

from __future__ import annotations

import inspect
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind

from pysqlbox.otel import names
from pysqlbox.otel.context import creation_context, links_to
from pysqlbox.otel.describing import common
from pysqlbox.otel.instruments import Attributes, Instruments, end_span

if TYPE_CHECKING:
    from pysqlbox.worker.handlers import Handler
    from pysqlbox.worker.outcomes import Outcomes
    from pysqlbox.worker.served_box import ServedBox

__all__ = ["Handled", "just_handled"]

#: Whose handler has just come back in this thread or task: what is logged of these messages is their span's.
just_handled: ContextVar[tuple[SpanContext, frozenset[int]] | None] = ContextVar("just_handled", default=None)
#: Contexts of messages that are held are remembered until they are settled; no more than so many.
REMEMBER_AT_MOST = 100_000


class Handled:
    """What a process's workers have in hand."""

    def __init__(self, instruments: Instruments, parents: bool) -> None:
        """``parents``: a single message's process span is the child of its creation context."""
        self._instruments = instruments
        self._parents = parents
        self._lock = threading.Lock()
        #: By deployment, box and id: the context that the message carries.
        self._held: dict[tuple[int, str, int], SpanContext | None] = {}

    def exchanged(
        self,
        box: ServedBox,
        outcomes: Outcomes,
        messages: Sequence[Any],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """A settle span of what was settled, and a receive span of what was claimed, in the same call."""
        end_ns = time.time_ns()
        start_ns = end_ns - int(seconds * 1e9)
        if outcomes:
            ids = [*outcomes.acked, *(int(str(record["id"])) for record in outcomes.others)]
            attributes = self._common(box, "settle", "settle")
            attributes[names.BATCH_MESSAGE_COUNT] = len(ids)
            held = [self._forget(box, each) if error is None else self._recall(box, each) for each in ids]
            self._instant(attributes, held, start_ns, end_ns, error)
            self._instruments.operated(attributes, seconds, error)
        if messages or (error is not None and not outcomes):
            attributes = self._common(box, "receive", "receive")
            attributes[names.BATCH_MESSAGE_COUNT] = len(messages)
            topics = Counter(message.topic for message in messages)
            if len(topics) == 1:
                attributes[names.DESTINATION_NAME] = next(iter(topics))
            found = [creation_context(message.headers) for message in messages]
            self._instant(attributes, found, start_ns, end_ns, error)
            self._instruments.operated(attributes, seconds, error)
            self._instruments.consumed(attributes, topics)
            with self._lock:
                for message, context in zip(messages, found, strict=True):
                    self._held[id(box.queue.deployment), box.name, message.id] = context
                while len(self._held) > REMEMBER_AT_MOST:
                    del self._held[next(iter(self._held))]

    def handling(
        self, box: ServedBox, handler: Handler, messages: Sequence[Any], call: Callable[[], Any]
    ) -> Callable[[], Any]:
        """The same call within a process span."""

        def watched() -> Any:
            span, attributes = self._begin(box, handler, messages)
            began = time.perf_counter()
            inside = trace.set_span_in_context(span)

            def end(answer: Any, error: BaseException | None) -> None:
                _tell_outcome(span, answer)
                end_span(span, error)
                self._instruments.processed(attributes, time.perf_counter() - began, error)

            token = contexts.attach(inside)
            try:
                answer = call()
            except BaseException as error:
                end(None, error)
                raise
            finally:
                contexts.detach(token)
                just_handled.set((span.get_span_context(), frozenset(each.id for each in messages)))
            if inspect.isawaitable(answer):
                return _awaited(answer, inside, end)
            end(answer, None)
            return answer

        return watched

    def fired(self, box: ServedBox, schedule: Any, row: dict[str, Any], seconds: float) -> None:
        """A send span of a schedule's message, whose headers are the schedule's own."""
        attributes = self._common(box, "send", "send")
        attributes |= {
            names.DESTINATION_NAME: schedule.topic,
            names.MESSAGE_ID: str(row["message_id"]),
            names.SCHEDULE: schedule.name,
        }
        end_ns = time.time_ns()
        start_ns = end_ns - int(seconds * 1e9)
        self._instruments.start(attributes, SpanKind.PRODUCER, context=Context(), start_ns=start_ns).end(
            end_ns
        )
        self._instruments.sent(attributes, {schedule.topic: 1}, None)
        self._instruments.operated(attributes, seconds, None)

    def _begin(self, box: ServedBox, handler: Handler, messages: Sequence[Any]) -> tuple[Span, Attributes]:
        attributes = self._common(box, "process", "process")
        attributes[names.DESTINATION_NAME] = handler.topic
        found = [creation_context(message.headers) for message in messages]
        parent: Context | None = None
        if handler.batch:
            attributes[names.BATCH_MESSAGE_COUNT] = len(messages)
        else:
            message = messages[0]
            attributes[names.MESSAGE_ID] = str(message.message_id)
            attributes[names.ATTEMPT] = message.attempt
            correlation_id = getattr(message, "correlation_id", None)
            if correlation_id is not None:
                attributes[names.CONVERSATION_ID] = correlation_id
            if self._parents and found[0] is not None:
                parent = trace.set_span_in_context(NonRecordingSpan(found[0]), Context())
        span = self._instruments.start(attributes, SpanKind.CONSUMER, context=parent, links=links_to(found))
        return span, attributes

    def _common(self, box: ServedBox, name: str, kind: str) -> Attributes:
        return common(box.queue.deployment, box.name, name, kind)

    def _instant(
        self,
        attributes: Attributes,
        made: list[SpanContext | None],
        start_ns: int,
        end_ns: int,
        error: BaseException | None,
    ) -> None:
        """A span of what is over already, in a trace of its own."""
        span = self._instruments.start(
            attributes, SpanKind.CLIENT, context=Context(), links=links_to(made), start_ns=start_ns
        )
        end_span(span, error, end_ns)

    def _recall(self, box: ServedBox, message_id: int) -> SpanContext | None:
        return self._held.get((id(box.queue.deployment), box.name, message_id))

    def _forget(self, box: ServedBox, message_id: int) -> SpanContext | None:
        with self._lock:
            return self._held.pop((id(box.queue.deployment), box.name, message_id), None)


async def _awaited(
    answer: Awaitable[Any], inside: Context, end: Callable[[Any, BaseException | None], None]
) -> Any:
    """What a coroutine handler answers, awaited within its span, in the task that runs it."""
    token = contexts.attach(inside)
    try:
        found = await answer
    except BaseException as error:
        end(None, error)
        raise
    finally:
        contexts.detach(token)
    end(found, None)
    return found


def _tell_outcome(span: Span, answer: Any) -> None:
    """What a single message's handler has decided, if it did not simply return."""
    if answer is not None and type(answer).__name__ in ("Ack", "Retry", "Release", "DeadLetter"):
        span.set_attribute(names.OUTCOME, type(answer).__name__.lower())
