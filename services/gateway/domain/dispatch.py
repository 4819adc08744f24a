"""The order of work: a single call runs as it is, a batch runs a few at a time and is answered in its own order."""

from __future__ import annotations

import asyncio

from services.gateway.domain.model import Answer, Message
from services.gateway.domain.ports import Answering

AT_ONCE = 8


async def dispatch(message: Message, answering: Answering, *, at_once: int = AT_ONCE) -> list[Answer]:
    """Return the answers of a message, in the order of its entries; notifications have none.

    Cancelling this cancels every entry that is under way and starts no other.
    """
    entries = message.entries
    if not message.batch:
        answer = await answering(entries[0])
        return [] if answer is None else [answer]
    answers: list[Answer | None] = [None] * len(entries)
    turns = iter(range(len(entries)))

    async def work() -> None:
        for turn in turns:
            answers[turn] = await answering(entries[turn])

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(entries))):
            group.create_task(work())
    return [answer for answer in answers if answer is not None]
