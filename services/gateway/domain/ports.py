"""What the protocol needs from outside."""

from __future__ import annotations

from typing import Protocol

from services.gateway.domain.model import Answer, Entry


class Answering(Protocol):
    """Turns one entry into its answer."""

    async def __call__(self, entry: Entry) -> Answer | None:
        """Run the entry and return its answer, None for a notification. Every failure is an answer; only the end of the
        caller's interest raises."""
        ...
