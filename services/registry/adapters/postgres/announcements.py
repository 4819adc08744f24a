"""Stores the announcements of executors, and keeps those with a lease in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.runtime.tasks import PeriodicTask
from libs.common.sql.engine import separately
from libs.common.telemetry.log import Log
from services.registry.adapters.postgres.tables import executors
from services.registry.domain.runners.announcement import Announcement, Circuit, CircuitState, RunnerSet

POLL_SECONDS = 1.0


class PostgresAnnouncements:
    """Implements Announcements. Leases are measured by the clock of the database, which all replicas share."""

    def __init__(
        self, engine: AsyncEngine, log: Log, on_change: Callable[[], None], *, interval: float = POLL_SECONDS
    ) -> None:
        """`on_change` is called when the announcements of this replica differ from those of the last poll."""
        self._engine, self._log, self._on_change = engine, log, on_change
        self._poller = PeriodicTask("announcements", self._poll, log, interval=interval)
        self._current = RunnerSet()

    async def start(self) -> None:
        """Read the announcements, then poll in the background."""
        await self.read()
        await self._poller.start()

    async def stop(self) -> None:
        """Stop polling."""
        await self._poller.stop()

    def current(self) -> RunnerSet:
        """Implement `Announcements.current`. While the database is down, the last announcements stay."""
        return self._current

    async def read(self) -> RunnerSet:
        """Implement `Announcements.read`."""
        query = select(executors).where(executors.c.expire_time > func.now()).order_by(executors.c.instance)
        async with separately(self._engine) as connection:
            rows = (await connection.execute(query)).all()
        read = RunnerSet(
            tuple(
                Announcement(
                    row.instance,
                    row.process_id,
                    frozenset(row.runners),
                    frozenset(row.tiers),
                    frozenset(row.packs),
                    frozenset((tier, limit) for tier, _, limit in (each.partition(":") for each in row.unkept)),
                    tuple(_circuit(each) for each in row.circuits),
                )
                for row in rows
            )
        )
        if read != self._current:
            self._current = read
            self._on_change()
        return read

    async def put(self, announcement: Announcement, lease: timedelta) -> None:
        """Implement `Announcements.put`."""
        row = {
            "process_id": announcement.process_id,
            "runners": sorted(announcement.runners),
            "tiers": sorted(announcement.tiers),
            "packs": sorted(announcement.packs),
            "unkept": sorted(f"{tier}:{limit}" for tier, limit in announcement.unkept),
            "circuits": [[each.name, each.state.value, each.change_time.isoformat()] for each in announcement.circuits],
            "expire_time": func.now() + lease,
        }
        statement = upsert(executors).values(instance=announcement.instance, **row)
        async with separately(self._engine) as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["instance"], set_=row))
        async with separately(self._engine) as connection:
            await connection.execute(delete(executors).where(executors.c.expire_time <= func.now()))
        await self.read()

    async def remove(self, instance: str, process_id: str) -> None:
        """Implement `Announcements.remove`."""
        own = (executors.c.instance == instance) & (executors.c.process_id == process_id)
        async with separately(self._engine) as connection:
            await connection.execute(delete(executors).where(own))
        await self.read()

    async def _poll(self) -> None:
        try:
            await self.read()
        except MeshError as error:
            self._log.warning("announcements cannot be read", reason=error.reason.name)


def _circuit(row: Sequence[str]) -> Circuit:
    name, state, changed = row
    return Circuit(name, CircuitState(state), datetime.fromisoformat(changed))
