"""What must be over before each call of a group begins: what it depends on, and what it could not run beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from libs.common.errors import MeshError, Violation
from libs.common.json.jsonio import parse_object
from services.executor.domain import errors
from services.executor.domain.model import Request
from services.executor.domain.ports import ToolView
from services.executor.domain.scheduling.conflicts import Footprint, conflicts, footprint_of
from services.executor.domain.tool import SiblingFailure, Tool


@dataclass(frozen=True, slots=True)
class GroupCall:
    """One call of a group."""

    request: Request
    depends_on: tuple[int, ...] = ()
    """The places of the calls that must have succeeded before it begins."""
    on_failure: SiblingFailure | None = None
    """What its failure does to its siblings; None for what its tool says."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a group, with everything that is known before it begins."""

    call: GroupCall
    tool: Tool | None
    """None where there is no such tool; the call itself will say so."""
    after: tuple[int, ...]
    """The places of the calls that must be over, however they end."""

    @property
    def on_failure(self) -> SiblingFailure:
        """What its failure does to its siblings."""
        if self.call.on_failure is not None:
            return self.call.on_failure
        return SiblingFailure.IGNORE if self.tool is None else self.tool.placement.sibling_failure


def plan(calls: Sequence[GroupCall], tools: ToolView) -> tuple[Step, ...]:
    """Return the steps in the order of the calls. Raises INVALID_REQUEST, with every violation, when dependencies lead in a circle or
    nowhere.

    Calls that could be in each other's way, and calls of tools that are not concurrency-safe, follow one another as they were given, unless
    a dependency says otherwise; all others may overlap.
    """
    order = _order(calls)
    found = [_tool(call.request, tools) for call in calls]
    feet = [_footprint(call.request, tool) for call, tool in zip(calls, found, strict=True)]
    after: list[set[int]] = [set(call.depends_on) for call in calls]
    for position, place in enumerate(order):
        after[place].update(earlier for earlier in order[:position] if _in_order(feet[earlier], feet[place]))
    return tuple(
        Step(call, tool, tuple(sorted(before))) for call, tool, before in zip(calls, found, after, strict=True)
    )


def _order(calls: Sequence[GroupCall]) -> list[int]:
    """An order in which nothing comes before what it depends on, and otherwise as the calls were given."""
    nowhere = [
        Violation(f"calls[{place}].depends_on[{entry}]", "depends_on.known", "is not the place of a call in the group")
        for place, call in enumerate(calls)
        for entry, needed in enumerate(call.depends_on)
        if not 0 <= needed < len(calls)
    ]
    waits_for = [{needed for needed in call.depends_on if 0 <= needed < len(calls)} for call in calls]
    order: list[int] = []
    ready = [place for place, needed in enumerate(waits_for) if not needed]
    heapify(ready)
    while ready:
        order.append(place := heappop(ready))
        for later, needed in enumerate(waits_for):
            if place in needed:
                needed.discard(place)
                if not needed:
                    heappush(ready, later)
    circular = _on_a_circle(waits_for, set(range(len(calls))).difference(order))
    if nowhere or circular:
        raise errors.group_invalid([*nowhere, *circular])
    return order


def _on_a_circle(waits_for: Sequence[set[int]], left: Iterable[int]) -> list[Violation]:
    """Say so about each call that waits for itself; those that only wait for such calls are no mistake of their own."""
    message = "depends on itself, directly or through others"
    return [
        Violation(f"calls[{place}].depends_on", "depends_on.acyclic", message)
        for place in sorted(left)
        if _reaches(place, waits_for)
    ]


def _reaches(place: int, waits_for: Sequence[set[int]]) -> bool:
    seen: set[int] = set()
    waiting = list(waits_for[place])
    while waiting:
        present = waiting.pop()
        if present == place:
            return True
        if present not in seen:
            seen.add(present)
            waiting.extend(waits_for[present])
    return False


def _tool(request: Request, tools: ToolView) -> Tool | None:
    try:
        return tools.resolve(request.tool, request.version)
    except MeshError:
        return None


def _footprint(request: Request, tool: Tool | None) -> Footprint | None:
    if tool is None:
        return None
    try:
        return footprint_of(tool, parse_object(request.arguments))
    except MeshError:
        # The call itself will say what is wrong with them; until then it touches whatever its tool may.
        return footprint_of(tool, {})


def _in_order(one: Footprint | None, other: Footprint | None) -> bool:
    if one is None or other is None:
        return False
    return (one.alone and other.alone) or conflicts(one, other)
