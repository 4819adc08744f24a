"""Open pages hear of changes; streams are limited, and end with the process."""

from __future__ import annotations

import asyncio
from typing import Any

from toolmesh.approval.v1 import approval_service_pb2 as pb

from services.gateway.console.approvals.live_events import change_events

CHANGED = b"event: changed\ndata: 1\n\n"


class Stream:
    """The stream of the approval service."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[Any] = asyncio.Queue()
        self.canceled = False

    def send(self, *names: str, synced: bool = True) -> None:
        tickets = [{"name": name} for name in names]
        self.pieces.put_nowait(pb.WatchTicketsResponse(tickets=tickets, synced=synced))  # type: ignore[arg-type]

    def end(self) -> None:
        self.pieces.put_nowait(None)

    def cancel(self) -> None:
        self.canceled = True

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        if (piece := await self.pieces.get()) is None:
            raise StopAsyncIteration
        return piece


async def changes(stream: Stream, ticket: str = "") -> int:
    """Return how many changes are sent until the stream ends."""
    stream.end()
    return [event async for event in change_events(stream, ticket, lambda: True)].count(CHANGED)


async def test_the_list_hears_of_changes_once_it_was_read() -> None:
    unread, read = Stream(), Stream()
    unread.send("tickets/1", synced=False)
    assert await changes(unread) == 0
    read.send("tickets/1", synced=False)
    read.send()
    read.send("tickets/2")
    # Both changes came at once, so they are one event.
    assert await changes(read) == 1
    assert read.canceled


async def test_the_page_of_a_ticket_hears_of_that_ticket_alone() -> None:
    other, own = Stream(), Stream()
    other.send("tickets/2")
    assert await changes(other, "tickets/1") == 0
    own.send("tickets/2", "tickets/1")
    assert await changes(own, "tickets/1") == 1


async def test_a_stream_ends_when_the_process_drains() -> None:
    stream = Stream()
    events = [event async for event in change_events(stream, "", lambda: False)]
    assert (events.count(CHANGED), stream.canceled) == (0, True)
