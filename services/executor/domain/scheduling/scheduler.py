"""Schedules calls: one starts when every counted capacity is free and no conflicting call is running.

The guarantees:

- A call takes all of its capacities at once or none, so there is no deadlock.
- Waiting calls are ranked by arrival and priority: a priority level is worth `aging` seconds of waiting. Equal ranks
  keep the order of arrival. A call never waits behind calls that arrived more than `(10 - priority) * aging` seconds
  after it, nine levels at most, so there is no starvation.
- A call that waits for its own tool or service does not block calls that do not need those. A call that waits for a
  conflicting call blocks only the calls that conflict with itself.
- A call that ends or gives up leaves at once, and every call that can start then starts.

One scheduler serves one executor, on its event loop. It has no task and no timer of its own.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any, Protocol

from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.scheduling.conflicts import Footprint, conflicts, footprint_of, touches_nothing
from services.executor.domain.tool import Tool

_IN_PROCESS = "builtin"
_LEAST, _MOST = 1, 10
# The retry delay of a refused call: as long as the first in the queue has waited, within these bounds.
_SOONEST_RETRY, _LATEST_RETRY = 1.0, 30.0

CapacityKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The concurrency and queue limits."""

    tool: int = 16
    """Concurrent calls of one tool, where its manifest does not say."""
    service: int = 16
    """Concurrent calls of all tools that depend on one external service."""
    sandboxes: int = 16
    """Concurrent sandboxed calls of all tools."""
    waiting: int = 512
    waiting_per_tool: int = 256
    aging: float = 0.5
    """The seconds of waiting that outweigh one priority level."""
    shared_volumes: frozenset[str] = frozenset()
    """The volumes in which calls of different tenants can conflict."""


class QueueObserver(Protocol):
    """Receives the events of the queue, for metrics."""

    def waited(self, tool: Tool, seconds: float, *, began: bool) -> None:
        """Observe a call that no longer waits: it started, or gave up."""
        ...

    def refused(self, tool: Tool) -> None:
        """Observe a call that the full queue refused."""
        ...


class Slot:
    """The slot of one call, as a context manager: the call holds its capacities within it."""

    __slots__ = (
        "_on_wait",
        "_scheduler",
        "blockers",
        "came",
        "capacities",
        "dependents",
        "footprint",
        "granted",
        "rank",
        "running",
        "tool",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        tool: Tool,
        footprint: Footprint,
        capacities: tuple[tuple[CapacityKey, int], ...],
        rank: tuple[float, int],
        on_wait: Callable[[], None] | None,
    ) -> None:
        self._scheduler, self._on_wait = scheduler, on_wait
        self.tool, self.footprint, self.capacities, self.rank = tool, footprint, capacities, rank
        self.came = 0.0
        self.running = False
        self.blockers = 0
        """The number of earlier calls that conflict with it."""
        self.dependents: set[Slot] = set()
        """The later calls that conflict with it."""
        self.granted: asyncio.Future[None] | None = None

    def __lt__(self, other: Slot) -> bool:
        return self.rank < other.rank

    async def __aenter__(self) -> None:
        """Return when the call may start. Raises QUEUE_FULL when the queue is full."""
        if self._scheduler.enter(self):
            return
        try:
            if self._on_wait is not None:
                self._on_wait()
            assert self.granted is not None
            await self.granted
        except BaseException:
            # Also if the slot was granted at the moment of the cancellation.
            self._scheduler.leave(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        """Release the slot."""
        self._scheduler.leave(self)


class Scheduler:
    """Gives calls their slot."""

    def __init__(self, clock: Clock, bounds: Bounds | None = None, observer: QueueObserver | None = None) -> None:
        self._clock, self._bounds, self._observer = clock, bounds or Bounds(), observer
        self._present: set[Slot] = set()
        self._used: dict[CapacityKey, int] = {}
        self._waiting: dict[str, int] = {}
        # By tool version: all calls of one need the same capacities, so only the first of each has to be checked.
        self._ready: dict[str, list[Slot]] = {}
        self._count = 0
        self.length = 0
        """The number of waiting calls."""

    @staticmethod
    def needs_no_slot(tool: Tool) -> bool:
        """Return whether calls of the tool need no slot. Constant for a version."""
        placement = tool.placement
        counted = placement.max_concurrency or placement.service or tool.runner != _IN_PROCESS
        return not counted and touches_nothing(tool)

    def slot(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        priority: int = 0,
        on_wait: Callable[[], None] | None = None,
        *,
        tenant: str = "",
    ) -> Slot:
        """Return the slot of a tenant's call.

        `on_wait` is called once if the call has to wait; priority 0 means that of the tool.
        """
        self._count += 1
        level = min(max(priority or tool.placement.priority, _LEAST), _MOST)
        rank = self._clock.monotonic() - level * self._bounds.aging
        footprint = footprint_of(tool, arguments, tenant, self._bounds.shared_volumes)
        return Slot(self, tool, footprint, self._capacities(tool), (rank, self._count), on_wait)

    def enter(self, slot: Slot) -> bool:
        """Queue a call, and return whether it starts at once."""
        slot.came = self._clock.monotonic()
        self._find_conflicts(slot)
        self._wait(slot)
        self._start_ready()
        if slot.running:
            return True
        if self.length > self._bounds.waiting or self._waiting[slot.tool.qualified] > self._bounds.waiting_per_tool:
            self._refuse(slot)
        slot.granted = asyncio.get_running_loop().create_future()
        return False

    def leave(self, slot: Slot) -> None:
        """Remove a call, running or waiting. Idempotent."""
        if slot not in self._present:
            return
        self._forget(slot)
        if slot.granted is not None and not slot.running and self._observer is not None:
            self._observer.waited(slot.tool, self._clock.monotonic() - slot.came, began=False)
        self._start_ready()

    def _capacities(self, tool: Tool) -> tuple[tuple[CapacityKey, int], ...]:
        """Return the counted capacities of a tool, narrowest first."""
        placement, bounds = tool.placement, self._bounds
        capacities = [(("tool", tool.qualified), placement.max_concurrency or bounds.tool)]
        if placement.service:
            capacities.append((("service", placement.service), bounds.service))
        if tool.runner != _IN_PROCESS:
            capacities.append((("sandboxes", ""), bounds.sandboxes))
        return tuple(capacities)

    def _find_conflicts(self, slot: Slot) -> None:
        """Find the conflicting calls. Only later calls wait for earlier ones, so there is no cycle."""
        for other in self._present:
            if not conflicts(slot.footprint, other.footprint):
                continue
            if other.running or other < slot:
                other.dependents.add(slot)
                slot.blockers += 1
            else:
                slot.dependents.add(other)
                if not other.blockers:
                    self._unready(other)
                other.blockers += 1
        self._present.add(slot)

    def _wait(self, slot: Slot) -> None:
        self.length += 1
        self._waiting[slot.tool.qualified] = self._waiting.get(slot.tool.qualified, 0) + 1
        if not slot.blockers:
            insort(self._ready.setdefault(slot.tool.name, []), slot)

    def _start_ready(self) -> None:
        """Start the calls without conflicts that fit, by rank.

        A call that does not fit reserves its capacities up to the first full one, so that later calls cannot take them.
        """
        heads = [line[0] for line in self._ready.values()]
        heapify(heads)
        reserved: dict[CapacityKey, int] = {}
        while heads:
            first = heads[0]
            if not self._fits(first, reserved):
                heappop(heads)
                continue
            self._start(first)
            line = self._ready.get(first.tool.name)
            if line:
                heapreplace(heads, line[0])
            else:
                heappop(heads)

    def _fits(self, slot: Slot, reserved: dict[CapacityKey, int]) -> bool:
        for key, capacity in slot.capacities:
            if self._used.get(key, 0) + reserved.get(key, 0) >= capacity:
                return False
            reserved[key] = reserved.get(key, 0) + 1
        for key, _ in slot.capacities:
            reserved[key] -= 1
        return True

    def _start(self, slot: Slot) -> None:
        self._stop_waiting(slot)
        slot.running = True
        for key, _ in slot.capacities:
            self._used[key] = self._used.get(key, 0) + 1
        if slot.granted is None:
            return
        if not slot.granted.done():
            slot.granted.set_result(None)
        if self._observer is not None:
            self._observer.waited(slot.tool, self._clock.monotonic() - slot.came, began=True)

    def _refuse(self, slot: Slot) -> None:
        self._forget(slot)
        self._start_ready()
        if self._observer is not None:
            self._observer.refused(slot.tool)
        waiting = [other.came for other in self._present if not other.running and other.tool.name == slot.tool.name]
        longest = slot.came - min(waiting, default=slot.came)
        raise errors.queue_full(slot.tool.qualified, min(max(longest, _SOONEST_RETRY), _LATEST_RETRY))

    def _forget(self, slot: Slot) -> None:
        self._present.discard(slot)
        if slot.running:
            for key, _ in slot.capacities:
                self._used[key] -= 1
                if not self._used[key]:
                    del self._used[key]
        else:
            self._stop_waiting(slot)
            for other in self._present:
                other.dependents.discard(slot)
        for other in slot.dependents:
            other.blockers -= 1
            if not other.blockers:
                insort(self._ready.setdefault(other.tool.name, []), other)
        slot.dependents.clear()

    def _stop_waiting(self, slot: Slot) -> None:
        name = slot.tool.qualified
        self.length -= 1
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
        if not slot.blockers:
            self._unready(slot)

    def _unready(self, slot: Slot) -> None:
        line = self._ready[slot.tool.name]
        del line[bisect_left(line, slot)]
        if not line:
            del self._ready[slot.tool.name]
