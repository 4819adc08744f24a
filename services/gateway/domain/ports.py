"""Ports of the protocol."""

from __future__ import annotations

from typing import Protocol

from services.gateway.domain.model import Entry, Response


class EntryHandler(Protocol):
    """Runs one entry."""

    async def __call__(self, entry: Entry) -> Response | None:
        """Run the entry; return its response, None for a notification. Only cancellation raises."""
        ...
