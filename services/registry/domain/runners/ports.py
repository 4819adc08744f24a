"""The ports of the runner domain."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from services.registry.domain.runners.announcement import Announcement, RunnerSet


class Announcements(Protocol):
    """The announcements of all executors, shared by the replicas."""

    def current(self) -> RunnerSet:
        """Return the announcements as of the last poll."""
        ...

    async def read(self) -> RunnerSet:
        """Read the announcements whose lease has not ended."""
        ...

    async def put(self, announcement: Announcement, lease: timedelta) -> None:
        """Store an announcement under its instance, and count it on this replica at once."""
        ...

    async def remove(self, instance: str, process_id: str) -> None:
        """Remove the announcement of an instance, if this process made it."""
        ...
