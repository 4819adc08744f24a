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
from services.executor.domain.scheduling.conflicts import Footprint, footprint_of, in_the_way, touches_nothing
from services.executor.domain.tool import Tool

_IN_PROCESS = "builtin"
_LEAST, _MOST = 1, 10
# What a refused call is told to wait: as long as the first in line has waited, within reason.
_SOONEST_RETRY, _LATEST_RETRY = 1.0, 30.0

Place = tuple[str, str]


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


class QueueWatch(Protocol):
    """Whoever counts the calls that wait."""

    def waited(self, tool: Tool, seconds: float, *, began: bool) -> None:
        """See a call that no longer waits: it began, or gave up."""
        ...

    def refused(self, tool: Tool) -> None:
        """See a call for which there was no room to wait."""
        ...


class Turn:
    """One call's way to its places and back, as a context: within it the call has its places."""

    __slots__ = (
        "_scheduler",
        "_when_waiting",
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
        places: tuple[tuple[Place, int], ...],
        rank: tuple[float, int],
        when_waiting: Callable[[], None] | None,
    ) -> None:
        self._scheduler, self._when_waiting = scheduler, when_waiting
        self.tool, self.footprint, self.places, self.rank = tool, footprint, places, rank
        self.came = 0.0
        self.running = False
        self.blockers = 0
        """How many calls before it are in its way."""
        self.dependents: set[Turn] = set()
        """The calls after it that it is in the way of."""
        self.granted: asyncio.Future[None] | None = None

    def __lt__(self, other: Turn) -> bool:
        return self.rank < other.rank

    async def __aenter__(self) -> None:
        """Return when the call has its places. Raises QUEUE_FULL when there is no room to wait."""
        if self._scheduler.enter(self):
            return
        try:
            if self._when_waiting is not None:
                self._when_waiting()
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
    """Gives calls their turn."""

    def __init__(self, clock: Clock, bounds: Bounds | None = None, watch: QueueWatch | None = None) -> None:
        self._clock, self._bounds, self._watch = clock, bounds or Bounds(), watch
        self._present: set[Turn] = set()
        self._used: dict[Place, int] = {}
        self._waiting: dict[str, int] = {}
        # By tool version: all in one of them need the same places, so only the first of each has to be looked at.
        self._ready: dict[str, list[Turn]] = {}
        self._count = 0
        self.length = 0
        """How many calls wait."""

    @staticmethod
    def free(tool: Tool) -> bool:
        """Say whether calls of the tool need no turn at all. It holds for a version, so it can be asked once and kept."""
        placement = tool.placement
        counted = placement.max_concurrency or placement.service or tool.runner != _IN_PROCESS
        return not counted and touches_nothing(tool)

    def place(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        priority: int = 0,
        waiting: Callable[[], None] | None = None,
    ) -> Turn:
        """Return a context in which the call has its places. `waiting` is told once if the call has to wait for them; 0 is the priority
        of the tool itself."""
        self._count += 1
        level = min(max(priority or tool.placement.priority, _LEAST), _MOST)
        rank = self._clock.monotonic() - level * self._bounds.aging
        return Turn(self, tool, footprint_of(tool, arguments), self._places(tool), (rank, self._count), waiting)

    def enter(self, turn: Turn) -> bool:
        """Take a call in, and say whether it begins at once."""
        turn.came = self._clock.monotonic()
        self._meet_others(turn)
        self._wait(turn)
        self._begin_whoever_can()
        if turn.running:
            return True
        if self.length > self._bounds.waiting or self._waiting[turn.tool.qualified] > self._bounds.waiting_per_tool:
            self._refuse(turn)
        turn.granted = asyncio.get_running_loop().create_future()
        return False

    def leave(self, turn: Turn) -> None:
        """Let a call go, from its places or from the line. Leaving twice leaves once."""
        if turn not in self._present:
            return
        self._forget(turn)
        if turn.granted is not None and not turn.running and self._watch is not None:
            self._watch.waited(turn.tool, self._clock.monotonic() - turn.came, began=False)
        self._begin_whoever_can()

    def _places(self, tool: Tool) -> tuple[tuple[Place, int], ...]:
        """The counted places of a tool, narrowest first."""
        placement, bounds = tool.placement, self._bounds
        places = [(("tool", tool.qualified), placement.max_concurrency or bounds.tool)]
        if placement.service:
            places.append((("service", placement.service), bounds.service))
        if tool.runner != _IN_PROCESS:
            places.append((("sandboxes", ""), bounds.sandboxes))
        return tuple(places)

    def _meet_others(self, turn: Turn) -> None:
        """Find whom the call waits for and who waits for it. Only later ones wait for earlier ones, so it never goes in a circle."""
        for other in self._present:
            if not in_the_way(turn.footprint, other.footprint):
                continue
            if other.running or other < turn:
                other.dependents.add(turn)
                turn.blockers += 1
            else:
                turn.dependents.add(other)
                if not other.blockers:
                    self._unready(other)
                other.blockers += 1
        self._present.add(turn)

    def _wait(self, turn: Turn) -> None:
        self.length += 1
        self._waiting[turn.tool.qualified] = self._waiting.get(turn.tool.qualified, 0) + 1
        if not turn.blockers:
            insort(self._ready.setdefault(turn.tool.name, []), turn)

    def _begin_whoever_can(self) -> None:
        """Go through those whom nothing is in the way of, by rank. Whoever cannot begin keeps the places that it could have, up to the
        first that is full: what is beyond that one is of no use to it yet, and may be to others."""
        heads = [line[0] for line in self._ready.values()]
        heapify(heads)
        kept: dict[Place, int] = {}
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

    def _fits(self, turn: Turn, kept: dict[Place, int]) -> bool:
        for place, capacity in turn.places:
            if self._used.get(place, 0) + kept.get(place, 0) >= capacity:
                return False
            kept[place] = kept.get(place, 0) + 1
        for place, _ in turn.places:
            kept[place] -= 1
        return True

    def _begin(self, turn: Turn) -> None:
        self._stop_waiting(turn)
        turn.running = True
        for place, _ in turn.places:
            self._used[place] = self._used.get(place, 0) + 1
        if turn.granted is None:
            return
        if not turn.granted.done():
            turn.granted.set_result(None)
        if self._watch is not None:
            self._watch.waited(turn.tool, self._clock.monotonic() - turn.came, began=True)

    def _refuse(self, turn: Turn) -> None:
        self._forget(turn)
        self._begin_whoever_can()
        if self._watch is not None:
            self._watch.refused(turn.tool)
        waiting = [other.came for other in self._present if not other.running and other.tool.name == turn.tool.name]
        longest = turn.came - min(waiting, default=turn.came)
        raise errors.queue_full(turn.tool.qualified, min(max(longest, _SOONEST_RETRY), _LATEST_RETRY))

    def _forget(self, turn: Turn) -> None:
        self._present.discard(turn)
        if turn.running:
            for place, _ in turn.places:
                self._used[place] -= 1
                if not self._used[place]:
                    del self._used[place]
        else:
            self._stop_waiting(turn)
            for other in self._present:
                other.dependents.discard(turn)
        for other in turn.dependents:
            other.blockers -= 1
            if not other.blockers:
                insort(self._ready.setdefault(other.tool.name, []), other)
        turn.dependents.clear()

    def _stop_waiting(self, turn: Turn) -> None:
        name = turn.tool.qualified
        self.length -= 1
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
        if not turn.blockers:
            self._unready(turn)

    def _unready(self, turn: Turn) -> None:
        line = self._ready[turn.tool.name]
        del line[bisect_left(line, turn)]
        if not line:
            del self._ready[turn.tool.name]
