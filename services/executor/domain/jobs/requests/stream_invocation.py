"""Runs one stream of an invocation: its events to the client; answers, acknowledgements and cancellation from it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from libs.common.errors import MeshError
from services.executor.domain.jobs.event import JobEvent
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.requests.answer_question import AnswerQuestion
from services.executor.domain.jobs.requests.attached_streams import AttachedStreams
from services.executor.domain.jobs.requests.cancel_invocation import CancelInvocation
from services.executor.domain.jobs.requests.watch_invocation import HEARTBEAT_SECONDS, WatchInvocation
from services.executor.domain.states import TERMINAL

T = TypeVar("T")
FIRST_MESSAGE_SECONDS = 30.0
# The most events that a client which acknowledges has not acknowledged.
WINDOW = 256
# The client is not read while so many of its answers were refused and it has not read why.
_MAX_REFUSALS = 8


class Answer(Struct, frozen=True):
    """The client answers a question."""

    input_id: str
    content: bytes


class Cancel(Struct, frozen=True):
    """The client cancels the invocation."""


class Acknowledge(Struct, frozen=True):
    """The client has received the events up to a sequence."""

    sequence: int


ClientMessage: TypeAlias = Answer | Cancel | Acknowledge


class Refusal(Struct, frozen=True):
    """Why an answer of the client was refused. Its question is still open, unless the error says otherwise."""

    error: MeshError


class StreamInvocation:
    """Serves streams. A client that reads slowly costs no memory but a page of events."""

    def __init__(
        self, watch: WatchInvocation, answer: AnswerQuestion, cancel: CancelInvocation, attached: AttachedStreams
    ) -> None:
        self._watch, self._answer, self._cancel, self._attached = watch, answer, cancel, attached

    async def first_message(self, messages: AsyncIterator[T]) -> T | None:
        """Return the first message of a client; None if there is none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
                return await anext(messages, None)
        return None

    async def run(
        self, owner: JobOwner, job: Job, after: int, messages: AsyncIterator[ClientMessage]
    ) -> AsyncIterator[JobEvent | Refusal | None]:
        """Yield the events behind a sequence, the terminal one last; None when nothing happened for some seconds.

        Raises what is wrong with the messages of the client, and like WatchInvocation.
        """
        inbox = _Inbox(after)
        async with self._attached.attach(job), aclosing(self._watch.follow(owner, job.invocation_id, after)) as events:
            reading = asyncio.create_task(self._read(owner, job.invocation_id, messages, inbox))
            following: asyncio.Future[Any] | None = None
            try:
                while True:
                    if inbox.refusals:
                        yield inbox.take_refusal()
                        continue
                    if following is None and inbox.window_open:
                        following = asyncio.ensure_future(anext(events, _END))
                    await _either(inbox, following, reading)
                    if following is None or not following.done():
                        if not inbox.refusals and not inbox.window_open:
                            # The client is alive, and behind: a sign of life needs no window.
                            yield None
                        continue
                    event, following = following.result(), None
                    if event is _END:
                        return
                    if event is not None:
                        inbox.sent = event.sequence
                    yield event
                    if event is not None and event.state in TERMINAL:
                        return
            finally:
                reading.cancel()
                if following is not None:
                    following.cancel()
                await asyncio.wait([reading, *([following] if following is not None else [])])

    async def _read(
        self, owner: JobOwner, invocation_id: str, messages: AsyncIterator[ClientMessage], inbox: _Inbox
    ) -> None:
        async for message in messages:
            if isinstance(message, Acknowledge):
                inbox.acknowledge(message.sequence)
            elif isinstance(message, Cancel):
                await self._cancel.execute(owner, invocation_id)
            else:
                try:
                    await self._answer.execute(owner, invocation_id, message.input_id, message.content)
                except MeshError as error:
                    await inbox.refuse(error)


_END = object()


class _Inbox:
    """What the client has said: its acknowledgements, and answers that were refused."""

    def __init__(self, after: int) -> None:
        self.sent = self._acknowledged = after
        self._acknowledges = False
        self.refusals: deque[Refusal] = deque()
        self._taken = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def window_open(self) -> bool:
        """Whether another event may be sent. A client that never acknowledges is held back by its connection."""
        return not self._acknowledges or self.sent - self._acknowledged < WINDOW

    def acknowledge(self, sequence: int) -> None:
        """Note that events were received."""
        self._acknowledges = True
        self._acknowledged = max(self._acknowledged, sequence)
        self.changed.set()

    async def refuse(self, error: MeshError) -> None:
        """Queue a refusal; wait while the client does not read."""
        while len(self.refusals) >= _MAX_REFUSALS:
            self._taken.clear()
            await self._taken.wait()
        self.refusals.append(Refusal(error))
        self.changed.set()

    def take_refusal(self) -> Refusal:
        """Return the oldest refusal."""
        self._taken.set()
        return self.refusals.popleft()


async def _either(inbox: _Inbox, following: asyncio.Future[Any] | None, reading: asyncio.Task[None]) -> None:
    """Wait for an event, or for the client. Raises what is wrong with the client's messages."""
    inbox.changed.clear()
    if inbox.refusals:
        return
    changed = asyncio.ensure_future(inbox.changed.wait())
    waiting: list[asyncio.Future[Any]] = [changed, *([following] if following is not None else [])]
    if not reading.done():
        waiting.append(reading)
    try:
        await asyncio.wait(waiting, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()
    if reading.done():
        reading.result()
