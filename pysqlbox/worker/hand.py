"""One thread of a worker: claims, runs handlers and settles, on its own connection."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pysqlbox.errors import DatabaseUnavailable, PysqlboxError
from pysqlbox.typed import Undecodable
from pysqlbox.worker.context import Context
from pysqlbox.worker.crew import Crew, Work, copy_of
from pysqlbox.worker.handlers import Handler, result_of
from pysqlbox.worker.lanes import QUICK_SECONDS, Lane
from pysqlbox.worker.plan import plan
from pysqlbox.worker.results import Ack, DeadLetter, NonRetryable, Release, Result, Retry
from pysqlbox.worker.sessions import Outcomes, Session
from pysqlbox.worker.settings import Settings

__all__ = ["Hand", "Tally"]

#: What is done is settled at least this often while a batch goes on.
SETTLE_SECONDS = 0.25
#: A worker that does several boxes looks at the others after this long.
STAY_SECONDS = 0.05


@dataclass(slots=True)
class Tally:
    """What one thread has done so far."""

    acked: int = 0
    retried: int = 0
    released: int = 0
    dead: int = 0


class Hand:
    """The state of one thread. The lease keeper reads it, and moves work out of ``local``.

    A thread that does not come back from a handler is written off: ``take_away`` takes its messages.
    """

    def __init__(self, crew: Crew, session: Session, owner: uuid.UUID, settings: Settings, rank: int) -> None:
        """``rank``: of the threads that are free, the one with the lowest is woken."""
        self.crew = crew
        self.rank = rank
        self.settings = settings
        self.tally = Tally()
        self.lane: Lane | None = None
        self.local: deque[Any] = deque()
        #: What is being handled, a message or a batch; whoever pops it decides what becomes of it.
        self.current: list[Any] = []
        #: The messages of a group behind the one that is being handled.
        self.behind: deque[Any] = deque()
        self.handler: Handler | None = None
        self.busy_since = 0.0
        self.leased_at = 0.0
        self.outcomes = Outcomes()
        self.written_off = False
        self._session = session
        self._owner = owner
        self.has_turn = False
        self.at_work = False
        self._settled_at = 0.0
        self._runner: asyncio.Runner | None = None

    def run(self) -> None:
        """The thread's life: until the crew has nothing more, or this thread was written off."""
        try:
            while not self.written_off and (work := self.crew.next(self)) is not None:
                try:
                    if isinstance(work, Lane):
                        self._serve(work)
                    else:
                        self._help(work)
                except Exception:  # a fault of ours must cost neither the thread nor others
                    lane = work if isinstance(work, Lane) else work.lane
                    held = [message.id for message in self.held()]
                    lane.log.exception("%s: unexpected; messages %s are left to leases", lane.name, held)
                    self.take_waiting()
                    self.current, self.busy_since = [], 0.0
                    self.crew.pause(1.0)
                finally:
                    self.crew.finished(self)
        finally:
            self._session.close()
            if self._runner is not None:
                self._runner.close()

    # Claiming and settling

    def _serve(self, lane: Lane) -> None:
        """Claim, handle, settle and claim again, as long as there is something."""
        self.lane = lane
        began = time.monotonic()
        slow = False
        try:
            while True:
                crew = self.crew
                stay = not crew.stopping and not (
                    time.monotonic() - began > STAY_SECONDS and crew.other_lane_is_due(lane)
                )
                if stay and not self.has_turn:
                    # A thread whose handlers take long comes back for one claim, whoever has the turns.
                    stay = crew.take_turn(self) or slow
                messages = self._exchange(lane, lane.claim_size() if stay else 0)
                if not messages:
                    return
                if self.has_turn and lane.is_slow(len(messages)):
                    crew.give_turn(self)
                started = time.monotonic()
                done = self._handle_all(lane, messages)
                took = time.monotonic() - started
                if done:
                    lane.note_cost(took, done)
                slow = took > QUICK_SECONDS
                if slow:
                    crew.give_turn(self)
                if self.written_off:
                    self._exchange(lane, 0)
                    return
        finally:
            self.lane = None

    def _help(self, work: Work) -> None:
        """Do what another thread could not get to."""
        self.lane = work.lane
        self.leased_at = work.leased_at
        self._settled_at = time.monotonic()
        try:
            self._do(work.lane, work.item)
            self._exchange(work.lane, 0)
            if isinstance(work.item, list):
                self.crew.wake(work.lane.name)  # the group may have more
        finally:
            self.lane = None

    def _exchange(self, lane: Lane, claim: int) -> list[Any]:
        """Settle what is done and claim the next; through an outage, until the database is back."""
        crew = self.crew
        failures = 0
        while True:
            outcomes = self.outcomes.take()
            topics = lane.claim_topics() if claim else None
            if claim and topics is not None and not topics:
                claim = 0
            if not outcomes and not claim:
                return []
            progress, wakes = crew.progress, lane.wakes
            asked_at = time.monotonic()
            try:
                messages = self._session.settle(
                    lane.queue, self._owner, outcomes, claim, self.settings.lease_seconds, topics
                )
            except DatabaseUnavailable as error:
                self.outcomes.give_back(outcomes)
                failures += 1
                if failures == 1:
                    lane.log.error("%s: the database does not answer: %s", lane.name, error)
                if crew.stopping:
                    claim = 0
                    if failures > 3:
                        lane.log.error("%s: %d messages stay unsettled", lane.name, len(outcomes))
                        return []
                crew.pause(random.uniform(0.5, 1) * min(0.1 * 2**failures, 5.0))
                if crew.stopping:
                    time.sleep(0.05)
                continue
            except PysqlboxError as error:
                lane.log.error("%s: settle or claim refused: %s", lane.name, error)
                self._settle_one_by_one(lane, outcomes)
                crew.pause(1.0)
                return []
            break
        if failures:
            lane.log.info("%s: the database answers again", lane.name)
        self._settled_at = asked_at
        if outcomes:
            crew.settled()
        if claim:
            self.leased_at = asked_at
            crew.claimed(lane, claim, len(messages), progress, wakes)
            lane.log.debug("%s: claimed %d of %d", lane.name, len(messages), claim)
        return messages

    def _settle_one_by_one(self, lane: Lane, outcomes: Outcomes) -> None:
        """After the database has refused a whole batch: what is wrong with one must not cost the others."""
        for part in outcomes.parts():
            try:
                self._session.settle(lane.queue, self._owner, part, 0, self.settings.lease_seconds, None)
            except PysqlboxError as error:
                lane.log.error("%s: %r is left to its lease: %s", lane.name, part, error)
        self.crew.settled()

    # Handling

    def _handle_all(self, lane: Lane, messages: list[Any]) -> int:
        """Run the handlers of a claim; how many messages were done here."""
        items = plan(messages, lane.handlers.by_topic)
        if items is not messages:
            self.crew.groups_seen = True
        self.local.extend(items)
        by_topic = lane.handlers.by_topic
        verbose = lane.log.isEnabledFor(logging.INFO)
        acked = self.outcomes.acked
        lease_seconds = self.settings.lease_seconds
        local = self.local
        crew = self.crew
        done = 0
        began = time.monotonic()
        while local and not self.written_off:
            if crew.stopping:
                self._release(local)
                break
            try:
                item = local.popleft()
            except IndexError:  # the keeper has just given the last one away
                break
            now = time.monotonic()
            if self.has_turn and now - began > QUICK_SECONDS:
                lane.note_cost(now - began, max(done, 1))  # for those who claim now
                crew.give_turn(self)
            if now - self._settled_at > SETTLE_SECONDS and self.outcomes:
                self._exchange(lane, 0)
            if isinstance(item, list):
                done += len(item)
                self._do(lane, item)
                continue
            done += 1
            handler = by_topic.get(item.topic)
            if (
                handler is None
                or handler.concurrency is not None
                or handler.is_async
                or crew.lost
                or now - self.leased_at > lease_seconds
            ):
                self._do(lane, item)
                continue
            # The common case, written out: nothing but the call itself between two messages.
            if verbose:
                lane.log.info("%s: %s message %d", lane.name, item.topic, item.id)
            current = self.current = [item]
            self.handler = handler
            self.busy_since = now
            result: Result | None = None
            try:
                argument = item if handler.decode is None else handler.decode(item)
                if handler.takes_context:
                    answer = handler.function(argument, Context(self, [item]))
                else:
                    answer = handler.function(argument)
                if answer is not None:
                    result = result_of(self._awaited(answer))
            except BaseException as error:  # noqa: BLE001  # whatever a handler raises means: again, or give up
                result = self._verdict(lane, item, error)
            try:
                current.pop()
            except IndexError:  # it took too long, and the keeper has decided already
                break
            self.busy_since = 0.0
            if result is None:
                acked.append(item.id)
                self.tally.acked += 1
            else:
                self._note(lane, item, result)
        return done

    def _do(self, lane: Lane, item: Any) -> None:
        """Handle one item of a plan: a message, a FIFO group's messages in order, or a batch."""
        messages = item if isinstance(item, list) else [item]
        by_topic = lane.handlers.by_topic
        handler = by_topic.get(messages[0].topic)
        if handler is not None and handler.batch and all(m.topic == handler.topic for m in messages):
            messages = [message for message in messages if self._is_ours(lane, message)]
            if messages:
                self._call(lane, handler, messages)
            return
        behind = self.behind = deque(messages)
        begun = False
        while behind:
            if self.crew.stopping and begun:
                self._release(behind)
                return
            try:
                message = behind.popleft()
            except IndexError:  # the worker is being stopped and has released them
                return
            # If a message's lease is lost, or it waits for its retry, those behind it go back too.
            going = self._is_ours(lane, message) and self._call(lane, by_topic.get(message.topic), [message])
            if self.written_off or going is None:
                return
            if not going:
                self._release(behind)
                return
            begun = True

    def _is_ours(self, lane: Lane, message: Any) -> bool:
        """Whether a message may be begun: if its lease ran out while it waited, another may have it."""
        lost, copy = self.crew.lost, copy_of(message)
        if copy not in lost and time.monotonic() - self.leased_at <= self.settings.lease_seconds:
            return True
        lost.discard(copy)
        lane.log.warning("%s: message %d is not begun, its lease ran out", lane.name, message.id)
        handler = lane.handlers.by_topic.get(message.topic)
        if handler is not None and (parked := lane.handlers.unpark_one(handler)) is not None:
            self.crew.hand_over(parked)
        return False

    def _call(self, lane: Lane, handler: Handler | None, messages: list[Any]) -> bool | None:
        """Run one handler and note the results; whether its group may go on (None: it is parked)."""
        if handler is None:
            for message in messages:
                lane.log.warning(
                    "%s: no handler for topic %r, message %d waits", lane.name, message.topic, message.id
                )
                self._note(lane, message, Retry(error=f"no handler for topic {message.topic!r}"))
            return False
        if handler.concurrency is None:
            return self._run(lane, handler, messages)
        if not lane.handlers.enter(handler, Work(lane, [*messages, *self.behind], self.leased_at)):
            self.behind.clear()
            return None
        try:
            return self._run(lane, handler, messages)
        finally:
            if not self.written_off:
                self._leave(lane, handler)

    def _leave(self, lane: Lane, handler: Handler) -> None:
        """Give back a place in a handler that has only so many."""
        parked, ask = lane.handlers.leave(handler)
        if parked is not None:
            self.crew.hand_over(parked)
        elif ask:
            self.crew.wake()

    def _run(self, lane: Lane, handler: Handler, messages: list[Any]) -> bool:
        if lane.log.isEnabledFor(logging.INFO):
            for message in messages:
                lane.log.info("%s: %s message %d", lane.name, message.topic, message.id)
        current = self.current = [messages]
        self.handler = handler
        self.busy_since = time.monotonic()
        results: dict[int, Result] = {}
        good, arguments = self._decode(lane, handler, messages, results)
        try:
            if good:
                answers = self._results(handler, good, arguments)
                results.update((message.id, answer) for message, answer in zip(good, answers, strict=True))
        except BaseException as error:  # noqa: BLE001  # whatever a handler raises means: again, or give up
            for number, message in enumerate(good):
                results[message.id] = self._verdict(lane, message, error, quiet=number > 0)
        try:
            current.pop()
        except IndexError:  # it took too long, and the keeper has decided already
            return False
        self.busy_since = 0.0
        for message in messages:
            self._note(lane, message, results[message.id])
        return all(isinstance(result, Ack | DeadLetter) for result in results.values())

    def _decode(
        self, lane: Lane, handler: Handler, messages: list[Any], results: dict[int, Result]
    ) -> tuple[list[Any], list[Any]]:
        """The messages to hand in, and what is handed in for them; the others have their result."""
        if handler.decode is None:
            return messages, messages
        good, arguments = [], []
        for message in messages:
            try:
                arguments.append(handler.decode(message))
                good.append(message)
            except Exception as error:  # noqa: BLE001  # a model's own code may run, and raise anything
                results[message.id] = self._verdict(lane, message, error)
        return good, arguments

    def _results(self, handler: Handler, messages: list[Any], arguments: list[Any]) -> list[Result]:
        argument: Any = arguments if handler.batch else arguments[0]
        extra = (Context(self, messages),) if handler.takes_context else ()
        answer = self._awaited(handler.function(argument, *extra))
        return handler.results(messages, answer) if handler.batch else [result_of(answer)]

    def _awaited(self, answer: Any) -> Any:
        """What a handler answers, and if it answers with a coroutine, what that answers."""
        if not asyncio.iscoroutine(answer):
            return answer
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(answer)

    def take_away(self, current: list[Any]) -> list[Any]:
        """Write the thread off: the messages it is handling, none if it has come back from them just now."""
        handler, lane = self.handler, self.lane
        try:
            item = current.pop()
        except IndexError:
            return []
        self.written_off = True
        self.crew.write_off(self)
        if handler is not None and handler.concurrency is not None and lane is not None:
            self._leave(lane, handler)
        return item if isinstance(item, list) else [item]

    # Results

    def _verdict(self, lane: Lane, message: Any, error: BaseException, *, quiet: bool = False) -> Result:
        """What an exception means: a dead letter if it can never succeed, otherwise another try."""
        reason = describe(error)
        if not quiet:
            lane.log.error(
                "%s: %s message %d, attempt %d: %s",
                lane.name, message.topic, message.id, message.attempt + 1, type(error).__name__,
                exc_info=None if isinstance(error, Undecodable) else error,
            )  # fmt: skip
        if isinstance(error, NonRetryable | Undecodable):
            return DeadLetter(reason)
        return Retry(error=reason)

    def _note(self, lane: Lane, message: Any, result: Result) -> None:
        """Turn a result into what settle takes."""
        outcomes = self.outcomes
        if self.crew.lost and copy_of(message) in self.crew.lost:
            self.crew.lost.discard(copy_of(message))
            if not isinstance(result, Ack):
                return  # somebody else has it by now, perhaps another thread of this worker
        if isinstance(result, Retry):
            result = self._give_up_or_retry(lane, message, result)
        match result:
            case Ack():
                self.tally.acked += 1
                outcomes.acked.append(message.id)
            case DeadLetter():
                self.tally.dead += 1
                lane.log.warning("%s: %s message %d is given up", lane.name, message.topic, message.id)
                outcomes.add(message.id, "fail", result.error or "given up by its handler")
            case Release():
                self.tally.released += 1
                outcomes.add(message.id, "release")
            case Retry():
                self.tally.retried += 1
                delay = self.settings.delay_or_none(lane.log, message.attempt + 1, result.delay)
                outcomes.add(message.id, "retry", result.error, delay, lane.limit_of(message.topic))

    def _give_up_or_retry(self, lane: Lane, message: Any, retry: Retry) -> Result:
        if lane.gives_up(message.topic, message.attempt + 1):
            return DeadLetter(retry.error or f"given up after {message.attempt + 1} attempts")
        return retry

    def _release(self, items: deque[Any]) -> None:
        """Give back what was not begun."""
        while items:
            try:
                item = items.popleft()
            except IndexError:
                return
            for message in item if isinstance(item, list) else [item]:
                self.tally.released += 1
                self.outcomes.add(message.id, "release")

    def held(self) -> list[Any]:
        """The messages that wait here or are being handled, for the lease keeper."""
        found: list[Any] = []
        for item in [*self.current, *list(self.behind), *list(self.local)]:
            found.extend(item if isinstance(item, list) else [item])
        return found

    def take_waiting(self) -> list[Any]:
        """The messages that wait here, which are then the caller's."""
        found: list[Any] = []
        for waiting in (self.behind, self.local):
            while waiting:
                try:
                    item = waiting.popleft()
                except IndexError:  # the thread has just taken the last one
                    break
                found.extend(item if isinstance(item, list) else [item])
        return found


def describe(error: BaseException) -> str:
    """An exception as one line for last_error."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # an exception that cannot even be shown
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def start_thread(name: str, target: Callable[[], None]) -> threading.Thread:
    """A daemon thread: one that hangs in a handler must not keep the process from ending."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
