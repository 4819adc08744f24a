"""Schedules calls: one starts when every counted capacity is free and no conflicting call is running.

The guarantees:

- A call takes all of its capacities at once or none, so there is no deadlock.
- Tenants take turns, and within a tenant its subjects do: between two turns of a tenant, every other tenant with a call
  that can start has one. However many calls of a tenant wait, they delay a call of another one by one turn.
- The calls of one subject are ranked by arrival and priority: a priority level is worth `aging` seconds of waiting.
  Equal ranks keep the order of arrival. A call never waits behind calls of its subject that arrived more than
  `(10 - priority) * aging` seconds after it.
- A call that waits for its own tool or service does not block calls that do not need those. A call that waits for a
  conflicting call blocks only the calls that conflict with itself.
- One tenant has at most three quarters of the sandboxes, and its share of the queue.
- A call that ends or gives up leaves at once, and every call that can start then starts.

One scheduler serves one executor, on its event loop. It has no task and no timer of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.scheduling.conflicts import Footprint, conflicts, footprint_of, touches_nothing
from services.executor.domain.scheduling.round_robin import RoundRobin
from services.executor.domain.tool import Tool

_IN_PROCESS = "builtin"
_LEAST, _MOST = 1, 10
# The retry delay of a refused call: as long as the first in the queue has waited, within these bounds.
_SOONEST_RETRY, _LATEST_RETRY = 1.0, 30.0

CapacityKey = tuple[str, str]
_SANDBOXES: CapacityKey = ("sandboxes", "")


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
    waiting_per_tenant: int = 128
    aging: float = 0.5
    """The seconds of waiting that outweigh one priority level."""
    shared_volumes: frozenset[str] = frozenset()
    """The volumes in which calls of different tenants can conflict."""


class Owner(NamedTuple):
    """The tenant and the subject that a call counts for."""

    tenant: str = ""
    subject: str = ""


NO_OWNER = Owner()


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
        "came",
        "capacities",
        "footprint",
        "granted",
        "rank",
        "rivals",
        "running",
        "subject",
        "tenant",
        "tool",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        tool: Tool,
        owner: Owner,
        footprint: Footprint,
        rank: tuple[float, int],
        on_wait: Callable[[], None] | None,
    ) -> None:
        self._scheduler, self._on_wait = scheduler, on_wait
        self.tool, self.footprint, self.rank = tool, footprint, rank
        self.tenant, self.subject = owner
        self.capacities = scheduler.capacities(tool)
        self.came = 0.0
        self.running = False
        self.rivals: set[Slot] = set()
        """The calls that conflict with it, waiting and running."""
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
        # In the order of arrival.
        self._queue: dict[Slot, None] = {}
        self._used: Counter[CapacityKey] = Counter()
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._turns = RoundRobin()
        self._count = 0

    @property
    def length(self) -> int:
        """The number of waiting calls."""
        return len(self._queue)

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
        owner: Owner = NO_OWNER,
        named: tuple[str, ...] | None = None,
    ) -> Slot:
        """Return the slot of a tenant's call.

        `on_wait` is called once if the call has to wait; priority 0 means that of the tool. `named` are the resources
        that the arguments name, where they are known already.
        """
        self._count += 1
        level = min(max(priority or tool.placement.priority, _LEAST), _MOST)
        rank = self._clock.monotonic() - level * self._bounds.aging
        footprint = footprint_of(tool, arguments, owner.tenant, self._bounds.shared_volumes, named)
        return Slot(self, tool, owner, footprint, (rank, self._count), on_wait)

    def enter(self, slot: Slot) -> bool:
        """Queue a call, and return whether it starts at once. Raises QUEUE_FULL."""
        slot.came = self._clock.monotonic()
        for other in self._present:
            if conflicts(slot.footprint, other.footprint):
                other.rivals.add(slot)
                slot.rivals.add(other)
        self._present.add(slot)
        self._queue[slot] = None
        self._waiting.update(_counted(slot))
        self._start_ready()
        if slot.running:
            return True
        if self._exceeds(slot):
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

    def capacities(self, tool: Tool) -> tuple[tuple[CapacityKey, int], ...]:
        """Return the counted capacities of a tool, narrowest first."""
        placement, bounds = tool.placement, self._bounds
        capacities = [(("tool", tool.qualified), placement.max_concurrency or bounds.tool)]
        if placement.service:
            capacities.append((("service", placement.service), bounds.service))
        if tool.runner != _IN_PROCESS:
            capacities.append((_SANDBOXES, bounds.sandboxes))
        return tuple(capacities)

    def _start_ready(self) -> None:
        """Start the calls that fit, in the order of their turns."""
        reserved = _Reservations()
        passed, full = set[Slot](), set[str]()
        versions = {slot.tool.name for slot in self._queue}
        for slot in self._turns.order(self._queue):
            if slot.tool.name not in full and self._has_no_rival(slot, passed):
                if self._fits(slot, reserved):
                    self._start(slot)
                    continue
                if self._has_share(slot):
                    # All calls of a version need the same capacities.
                    full.add(slot.tool.name)
                if full == versions:
                    break
            passed.add(slot)

    def _has_share(self, slot: Slot) -> bool:
        """Return whether the tenant may use one more sandbox. The last quarter of them is for other tenants."""
        most = self._bounds.sandboxes - self._bounds.sandboxes // 4
        counted = slot.tool.runner != _IN_PROCESS and most < self._bounds.sandboxes
        return not counted or self._used[_share(slot)] < most

    @staticmethod
    def _has_no_rival(slot: Slot, passed: set[Slot]) -> bool:
        """Return whether no conflicting call runs or is to run before."""
        return not slot.rivals or (slot.rivals.isdisjoint(passed) and not any(rival.running for rival in slot.rivals))

    def _fits(self, slot: Slot, reserved: _Reservations) -> bool:
        """Return whether the capacities of a call are free. Otherwise it reserves those before the first full one.

        Later calls cannot take what is reserved. A tenant beyond its share reserves from its own calls alone.
        """
        has_share = self._has_share(slot)
        for index, (key, capacity) in enumerate(slot.capacities):
            beyond_share = not has_share and key == _SANDBOXES
            if beyond_share or self._used[key] + reserved.count(key, slot.tenant) >= capacity:
                reserved.add(slot, index, None if has_share else slot.tenant)
                return False
        return True

    def _start(self, slot: Slot) -> None:
        self._stop_waiting(slot)
        slot.running = True
        self._turns.serve(slot)
        self._used.update(_held(slot))
        if slot.granted is None:
            return
        if not slot.granted.done():
            slot.granted.set_result(None)
        if self._observer is not None:
            self._observer.waited(slot.tool, self._clock.monotonic() - slot.came, began=True)

    def _exceeds(self, slot: Slot) -> bool:
        bounds = self._bounds
        return (
            self.length > bounds.waiting
            or self._waiting["tool", slot.tool.qualified] > bounds.waiting_per_tool
            or self._waiting["tenant", slot.tenant] > bounds.waiting_per_tenant
        )

    def _refuse(self, slot: Slot) -> None:
        self._forget(slot)
        self._start_ready()
        if self._observer is not None:
            self._observer.refused(slot.tool)
        waiting = [other.came for other in self._queue if other.tool.name == slot.tool.name]
        longest = slot.came - min(waiting, default=slot.came)
        raise errors.queue_full(slot.tool.qualified, min(max(longest, _SOONEST_RETRY), _LATEST_RETRY))

    def _forget(self, slot: Slot) -> None:
        self._present.discard(slot)
        if slot.running:
            _subtract(self._used, _held(slot))
        else:
            self._stop_waiting(slot)
        for rival in slot.rivals:
            rival.rivals.discard(slot)
        slot.rivals.clear()

    def _stop_waiting(self, slot: Slot) -> None:
        del self._queue[slot]
        _subtract(self._waiting, _counted(slot))


class _Reservations:
    """The capacities that calls without a slot reserve while the queue is looked through, once for each version."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str | None, CapacityKey]] = Counter()
        self._versions: set[tuple[str | None, str]] = set()

    def count(self, key: CapacityKey, tenant: str) -> int:
        """Return how much is reserved from calls of a tenant."""
        return self._counts[None, key] + self._counts[tenant, key]

    def add(self, slot: Slot, capacities: int, tenant: str | None) -> None:
        """Reserve the first so many capacities of a call, from calls of one tenant or of all (None)."""
        if (tenant, slot.tool.name) not in self._versions:
            self._versions.add((tenant, slot.tool.name))
            self._counts.update((tenant, key) for key, _ in slot.capacities[:capacities])


def _counted(slot: Slot) -> list[tuple[str, str]]:
    """Return what a waiting call counts in."""
    return [("tool", slot.tool.qualified), ("tenant", slot.tenant)]


def _held(slot: Slot) -> list[CapacityKey]:
    """Return what a running call holds."""
    keys = [key for key, _ in slot.capacities]
    return [*keys, _share(slot)] if _SANDBOXES in keys else keys


def _share(slot: Slot) -> CapacityKey:
    return "sandboxes of", slot.tenant


def _subtract(counts: Counter[tuple[str, str]], keys: list[tuple[str, str]]) -> None:
    for key in keys:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]
