"""AnnounceRunners: stores what an executor can run, under a lease."""

from __future__ import annotations

from datetime import timedelta

from services.registry.domain.runners.announcement import Announcement
from services.registry.domain.runners.ports import Announcements

# Executors renew at a third of it, so that two lost announcements change nothing.
LEASE = timedelta(seconds=30)


async def announce_runners(announcement: Announcement, *, announcements: Announcements) -> timedelta:
    """Store the announcement and return its lease."""
    await announcements.put(announcement, LEASE)
    return LEASE
