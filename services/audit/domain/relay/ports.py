"""Ports of the relay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.audit.domain.relay.cloudevent import CloudEvent


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """Lag of the relay's sink, and whether this replica is the relaying one."""

    leads: bool
    records_behind: int
    seconds_behind: float


class RelaySink(Protocol):
    """Receives the log as CloudEvents. Positions are stored by the name of the sink."""

    @property
    def name(self) -> str:
        """The name under which the position is stored."""
        ...

    async def open(self, log_id: str, position: int) -> int:
        """Connect for a log. Return the sequence to continue from: `position`, or an earlier one if the sink lost
        acknowledged events."""
        ...

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """Return when all events are acknowledged, in order and after all earlier ones.

        Raises SinkError otherwise. The sink may then have stored the first events, and must be opened again.
        """
        ...

    async def erase(self, sequences: Sequence[int]) -> None:
        """Remove the events of these records, if the sink has them and can. Raises SinkError like `publish`."""
        ...

    async def close(self) -> None:
        """Close the connection and discard unacknowledged events. Never raises."""
        ...


class RelayLease(Protocol):
    """The relay's lease, held by one replica at a time, and the stored position."""

    async def acquire(self) -> int | None:
        """Acquire the lease and return the position, the first sequence not known to be relayed. None while another
        replica holds it."""
        ...

    async def renew(self) -> None:
        """Confirm that the lease is still held; raises LeaseLostError otherwise."""
        ...

    async def advance(self, position: int) -> None:
        """Store the position, which never decreases. Raises LeaseLostError, and stores nothing, without the lease."""
        ...

    async def position(self) -> int:
        """Return the stored position, with or without the lease."""
        ...

    async def release(self) -> None:
        """Release the lease. Never raises."""
        ...


class RelayObserver(Protocol):
    """Receives the state of the relay."""

    def report_status(self, status: RelayStatus) -> None:
        """Report the lag of the sink."""
        ...

    def report_relayed(self, records: int) -> None:
        """Report newly relayed records."""
        ...

    def report_missed(self, records: int) -> None:
        """Report records whose shard was archived before they were relayed."""
        ...

    def report_failure(self, error: Exception, pause: float) -> None:
        """Report a failure and the pause before the next attempt."""
        ...
