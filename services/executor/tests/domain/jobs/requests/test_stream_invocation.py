"""Flow control of one stream: a client that acknowledges gets a window of events, and refusals reach it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain.jobs.event import JobEvent
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.requests.attached_streams import AttachedStreams
from services.executor.domain.jobs.requests.stream_invocation import (
    WINDOW,
    Acknowledge,
    Answer,
    Cancel,
    Refusal,
    StreamInvocation,
)
from services.executor.domain.states import State
from services.executor.tests.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = JobOwner("acme", "alice")
JOB = Job("i", OWNER, "", "", State.RUNNING, 0, 1, "", NOW, NOW, cancel_when_detached=True)


class Peers:
    """Everything that a stream talks to."""

    def __init__(self, events: int) -> None:
        self.read, self._events = 0, events
        self.canceled: list[str] = []
        self.renewed: list[str] = []

    async def follow(self, owner: JobOwner, invocation_id: str, after: int) -> AsyncGenerator[JobEvent]:
        for sequence in range(after + 1, self._events + 1):
            self.read = sequence
            yield JobEvent(sequence, NOW, State.SUCCEEDED if sequence == self._events else State.RUNNING)

    async def execute(self, owner: JobOwner, invocation_id: str, *answer: Any) -> None:
        if answer:
            raise MeshError(Reason.ARGUMENTS_INVALID)
        self.canceled.append(invocation_id)

    async def renew_attachments(self, ids: Any) -> None:
        self.renewed += ids

    async def cancel_detached(self) -> int:
        return 0


def a_stream(peers: Any, said: asyncio.Queue[Any]) -> AsyncGenerator[Any]:
    async def messages() -> AsyncIterator[Any]:
        while True:
            message = await said.get()
            if isinstance(message, Exception):
                raise message
            yield message

    stream = StreamInvocation(peers, peers, peers, AttachedStreams(peers, peers))
    running: Any = stream.run(OWNER, JOB, 0, messages())
    return running


async def take(stream: AsyncGenerator[Any], number: int) -> list[int]:
    return [(await anext(stream)).sequence for _ in range(number)]


async def test_a_client_that_acknowledges_gets_no_more_than_its_window() -> None:
    peers, said = Peers(3 * WINDOW), asyncio.Queue[Any]()
    async with aclosing(a_stream(peers, said)) as stream:
        await take(stream, 1)
        said.put_nowait(Acknowledge(1))
        await until(said.empty)
        assert await take(stream, WINDOW) == list(range(2, WINDOW + 2))
        following = asyncio.ensure_future(anext(stream))
        for _ in range(100):
            await asyncio.sleep(0)
        # Nothing is read from the store while the window is closed.
        assert (following.done(), peers.read) == (False, WINDOW + 1)
        said.put_nowait(Acknowledge(WINDOW + 1))
        assert (await following).sequence == WINDOW + 2
    assert peers.renewed == ["i"]


async def test_a_client_that_never_acknowledges_is_held_back_by_its_connection_only() -> None:
    peers = Peers(3 * WINDOW)
    async with aclosing(a_stream(peers, asyncio.Queue())) as stream:
        assert [event.sequence async for event in stream] == list(range(1, 3 * WINDOW + 1))


async def test_a_refused_answer_goes_back_a_cancellation_is_made_and_a_bad_message_ends_the_stream() -> None:
    peers, said = Peers(3 * WINDOW), asyncio.Queue[Any]()
    async with aclosing(a_stream(peers, said)) as stream:
        await take(stream, 1)
        said.put_nowait(Cancel())
        said.put_nowait(Answer("q", b"1"))
        while True:
            message = await anext(stream)
            if isinstance(message, Refusal):
                break
        assert message.error.reason is Reason.ARGUMENTS_INVALID
        assert peers.canceled == ["i"]
        said.put_nowait(MeshError(Reason.INVALID_REQUEST))
        with pytest.raises(MeshError):
            async for _ in stream:
                await asyncio.sleep(0)
