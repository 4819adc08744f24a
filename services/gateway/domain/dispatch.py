"""Runs the entries of a batch, a few at a time, and returns the responses in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from libs.common.errors import MeshError
from services.gateway.domain.errors import interrupted
from services.gateway.domain.model import Entry, InvalidEntry, Response
from services.gateway.domain.ports import EntryHandler

MAX_CONCURRENT = 8


async def dispatch(
    entries: Sequence[Entry], respond: EntryHandler, *, concurrency: int = MAX_CONCURRENT
) -> list[Response]:
    """Return the responses of a batch, in the order of its entries; notifications have none.

    Cancelling this cancels every running entry and starts no other.
    """
    responses: list[Response | None] = [None] * len(entries)
    indices = iter(range(len(entries)))

    async def work() -> None:
        for index in indices:
            responses[index] = await respond(entries[index])

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(entries))):
            group.create_task(work())
    return [response for response in responses if response is not None]


def refused_responses(entries: Sequence[Entry], error: MeshError) -> list[Response]:
    """Return the responses of a message that is refused as a whole: each call under its own id, notifications none."""
    return [
        Response(entry.id, error=error)
        for entry in entries
        if isinstance(entry, InvalidEntry) or not entry.notification
    ]


def interrupted_responses(entries: Sequence[Entry]) -> list[Response]:
    """Return the responses of a message whose work was interrupted: each call under its own id."""
    return [
        Response(entry.id, error=entry.error if isinstance(entry, InvalidEntry) else interrupted())
        for entry in entries
        if isinstance(entry, InvalidEntry) or not entry.notification
    ]
