"""Announcements of executors for tests that register tools without an executor."""

from __future__ import annotations

from datetime import timedelta

from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from services.registry.adapters.postgres.announcements import PostgresAnnouncements
from services.registry.domain.runners.announcement import TIERS, Announcement, RunnerSet

EVERY_RUNNER = frozenset(name.removeprefix("RUNNER_KIND_").lower() for name in pb.RunnerKind.keys()[1:])
ABLE = Announcement("able", "1", EVERY_RUNNER, frozenset(TIERS), frozenset())
"""An executor with every runner and sandbox, and without packs."""


class FixedAnnouncements:
    """Announcements that never change."""

    def __init__(self, *announcements: Announcement) -> None:
        self._runners = RunnerSet(announcements)

    def current(self) -> RunnerSet:
        return self._runners

    async def read(self) -> RunnerSet:
        return self._runners

    async def put(self, announcement: Announcement, lease: timedelta) -> None:
        raise AssertionError("these announcements never change")

    async def remove(self, instance: str, process_id: str) -> None:
        raise AssertionError("these announcements never change")


async def announce_every_runner(database_url: str) -> None:
    """Announce an executor that outlives every test. The registry must have migrated the database."""
    engine = engine_for(database_url, schema="registry")
    try:
        store = PostgresAnnouncements(engine, Log("test", level="error"), lambda: None)
        await store.put(ABLE, timedelta(days=1))
    finally:
        await engine.dispose()
