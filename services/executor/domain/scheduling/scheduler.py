"""When a call may begin: it has a place wherever places are counted, and nothing that is under way is in its way.

The guarantees:

- A call takes all of its places at once or none, so no two calls can each hold what the other waits for.
- Calls that wait are ranked by when they came and how urgent they are: a level of priority is worth `aging` seconds of waiting.
  Equals keep the order they came in. Whoever comes more than `(10 - priority) * aging` seconds after a call, nine levels at most, is
  never given what that call waits for, and never gets in its way: so nothing starves.
- A call that waits for its own tool or service holds up nobody who can do without those, and a call that waits for another one to
  get out of its way holds up only those that would be in its own.
- Whoever leaves, by ending or by giving up, leaves at once, and whoever can begin then begins.

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
# What a refused call is told to wait: as long as the first in line has waited, within reason.
_SOONEST_RETRY, _LATEST_RETRY = 1.0, 30.0

CapacityKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many calls may be under way at once, and how many may wait."""

    tool: int = 16
    """Of one tool, where its manifest does not say."""
    service: int = 16
    """Of all tools that lean on one outside service."""
    sandboxes: int = 16
    """Outside of this process, of all tools."""
    waiting: int = 512
    waiting_per_tool: int = 256
    aging: float = 0.5
    """How many seconds of waiting make up for one level of priority."""


class QueueObserver(Protocol):
    """Whoever counts the calls that wait."""

    def waited(self, tool: Tool, seconds: float, *, began: bool) -> None:
        """See a call that no longer waits: it began, or gave up."""
        ...

    def refused(self, tool: Tool) -> None:
        """See a call for which there was no room to wait."""
        ...


class Slot:
    """One call's way to its places and back, as a context: within it the call has its places."""

    __slots__ = (
        "_on_wait",
        "_scheduler",
        "blockers",
        "came",
        "dependents",
        "footprint",
        "granted",
        "places",
        "rank",
        "running",
        "tool",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        tool: Tool,
        footprint: Footprint,
        places: tuple[tuple[CapacityKey, int], ...],
        rank: tuple[float, int],
        on_wait: Callable[[], None] | None,
    ) -> None:
        self._scheduler, self._on_wait = scheduler, on_wait
        self.tool, self.footprint, self.places, self.rank = tool, footprint, places, rank
        self.came = 0.0
        self.running = False
        self.blockers = 0
        """How many calls before it are in its way."""
        self.dependents: set[Slot] = set()
        """The calls after it that it is in the way of."""
        self.granted: asyncio.Future[None] | None = None

    def __lt__(self, other: Slot) -> bool:
        return self.rank < other.rank

    async def __aenter__(self) -> None:
        """Return when the call has its places. Raises QUEUE_FULL when there is no room to wait."""
        if self._scheduler.enter(self):
            return
        try:
            if self._on_wait is not None:
                self._on_wait()
            assert self.granted is not None
            await self.granted
        except BaseException:
            # Also when the places were given in the very moment in which it gave up.
            self._scheduler.leave(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        """Give the places back."""
        self._scheduler.leave(self)


class Scheduler:
    """Gives calls their slot."""

    def __init__(self, clock: Clock, bounds: Bounds | None = None, observer: QueueObserver | None = None) -> None:
        self._clock, self._bounds, self._observer = clock, bounds or Bounds(), observer
        self._present: set[Slot] = set()
        self._used: dict[CapacityKey, int] = {}
        self._waiting: dict[str, int] = {}
        # By tool version: all in one of them need the same places, so only the first of each has to be looked at.
        self._ready: dict[str, list[Slot]] = {}
        self._count = 0
        self.length = 0
        """How many calls wait."""

    @staticmethod
    def needs_no_slot(tool: Tool) -> bool:
        """Say whether calls of the tool need no slot at all. It holds for a version, so it can be asked once and kept."""
        placement = tool.placement
        counted = placement.max_concurrency or placement.service or tool.runner != _IN_PROCESS
        return not counted and touches_nothing(tool)

    def slot(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        priority: int = 0,
        on_wait: Callable[[], None] | None = None,
    ) -> Slot:
        """Return a context in which the call has its places. `waiting` is told once if the call has to wait for them; 0 is the priority
        of the tool itself."""
        self._count += 1
        level = min(max(priority or tool.placement.priority, _LEAST), _MOST)
        rank = self._clock.monotonic() - level * self._bounds.aging
        return Slot(self, tool, footprint_of(tool, arguments), self._places(tool), (rank, self._count), on_wait)

    def enter(self, slot: Slot) -> bool:
        """Take a call in, and say whether it begins at once."""
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
        """Let a call go, from its places or from the line. Leaving twice leaves once."""
        if slot not in self._present:
            return
        self._forget(slot)
        if slot.granted is not None and not slot.running and self._observer is not None:
            self._observer.waited(slot.tool, self._clock.monotonic() - slot.came, began=False)
        self._start_ready()

    def _places(self, tool: Tool) -> tuple[tuple[CapacityKey, int], ...]:
        """The counted places of a tool, narrowest first."""
        placement, bounds = tool.placement, self._bounds
        places = [(("tool", tool.qualified), placement.max_concurrency or bounds.tool)]
        if placement.service:
            places.append((("service", placement.service), bounds.service))
        if tool.runner != _IN_PROCESS:
            places.append((("sandboxes", ""), bounds.sandboxes))
        return tuple(places)

    def _find_conflicts(self, slot: Slot) -> None:
        """Find whom the call waits for and who waits for it. Only later ones wait for earlier ones, so it never goes in a circle."""
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
        """Go through those whom nothing is in the way of, by rank. Whoever cannot begin keeps the places that it could have, up to the
        first that is full: what is beyond that one is of no use to it yet, and may be to others."""
        heads = [line[0] for line in self._ready.values()]
        heapify(heads)
        kept: dict[CapacityKey, int] = {}
        while heads:
            first = heads[0]
            if not self._fits(first, kept):
                heappop(heads)
                continue
            self._begin(first)
            line = self._ready.get(first.tool.name)
            if line:
                heapreplace(heads, line[0])
            else:
                heappop(heads)

    def _fits(self, slot: Slot, kept: dict[CapacityKey, int]) -> bool:
        for place, capacity in slot.places:
            if self._used.get(place, 0) + kept.get(place, 0) >= capacity:
                return False
            kept[place] = kept.get(place, 0) + 1
        for place, _ in slot.places:
            kept[place] -= 1
        return True

    def _begin(self, slot: Slot) -> None:
        self._stop_waiting(slot)
        slot.running = True
        for place, _ in slot.places:
            self._used[place] = self._used.get(place, 0) + 1
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
            for place, _ in slot.places:
                self._used[place] -= 1
                if not self._used[place]:
                    del self._used[place]
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
