"""The order of work in a batch: a few entries at a time, answered in their own order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.gateway.domain.errors import cut_off
from services.gateway.domain.model import Answer, Entry, Unusable
from services.gateway.domain.ports import Answering

AT_ONCE = 8


async def dispatch(entries: Sequence[Entry], answering: Answering, *, at_once: int = AT_ONCE) -> list[Answer]:
    """Return the answers of a batch, in the order of its entries; notifications have none.

    Cancelling this cancels every entry that is under way and starts no other.
    """
    answers: list[Answer | None] = [None] * len(entries)
    turns = iter(range(len(entries)))

    async def work() -> None:
        for turn in turns:
            answers[turn] = await answering(entries[turn])

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(entries))):
            group.create_task(work())
    return [answer for answer in answers if answer is not None]


def unfinished(entries: Sequence[Entry]) -> list[Answer]:
    """Return the answers of a message whose work was ended in the middle: each call under its own id."""
    return [
        Answer(entry.id, error=entry.error if isinstance(entry, Unusable) else cut_off())
        for entry in entries
        if isinstance(entry, Unusable) or not entry.notification
    ]
