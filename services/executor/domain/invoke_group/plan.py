"""Plans a group: which calls must end before each call starts, by dependency and by conflict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from libs.common.errors import MeshError, Violation
from libs.common.json.jsonio import parse_object
from services.executor.domain import errors
from services.executor.domain.model import Request
from services.executor.domain.phases.resolve_granted import resolve_granted
from services.executor.domain.ports import ToolView
from services.executor.domain.scheduling.conflicts import Footprint, conflicts, footprint_of
from services.executor.domain.tool import SiblingFailure, Tool


@dataclass(frozen=True, slots=True)
class GroupCall:
    """One call of a group."""

    request: Request
    depends_on: tuple[int, ...] = ()
    """The indices of the calls that must have succeeded before it starts."""
    on_failure: SiblingFailure | None = None
    """The effect of its failure on its siblings; None for the default of its tool."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a group, with its tool and order."""

    call: GroupCall
    tool: Tool | None
    """None if there is no such tool, or none for this token; the call itself will fail with that error."""
    after: tuple[int, ...]
    """The indices of the calls that must have ended, however they end."""

    @property
    def on_failure(self) -> SiblingFailure:
        """The effect of its failure on its siblings."""
        if self.call.on_failure is not None:
            return self.call.on_failure
        return SiblingFailure.IGNORE if self.tool is None else self.tool.placement.sibling_failure


def plan(calls: Sequence[GroupCall], tools: ToolView) -> tuple[Step, ...]:
    """Return the steps in the order of the calls. Raises INVALID_REQUEST for cyclic or unknown dependencies.

    Conflicting calls, and calls of tools that are not concurrency-safe, run in the given order, unless a dependency
    reverses it. All others may overlap.
    """
    order = _order(calls)
    resolved = [_tool(call.request, tools) for call in calls]
    footprints = [_footprint(call.request, tool) for call, tool in zip(calls, resolved, strict=True)]
    after: list[set[int]] = [set(call.depends_on) for call in calls]
    for position, index in enumerate(order):
        after[index].update(
            earlier for earlier in order[:position] if _in_order(footprints[earlier], footprints[index])
        )
    return tuple(
        Step(call, tool, tuple(sorted(before))) for call, tool, before in zip(calls, resolved, after, strict=True)
    )


def _order(calls: Sequence[GroupCall]) -> list[int]:
    """Return a topological order of the calls that otherwise keeps the given order."""
    unknown = [
        Violation(f"calls[{index}].depends_on[{entry}]", "depends_on.known", "is not the index of a call in the group")
        for index, call in enumerate(calls)
        for entry, needed in enumerate(call.depends_on)
        if not 0 <= needed < len(calls)
    ]
    waits_for = [{needed for needed in call.depends_on if 0 <= needed < len(calls)} for call in calls]
    order: list[int] = []
    ready = [index for index, needed in enumerate(waits_for) if not needed]
    heapify(ready)
    while ready:
        order.append(index := heappop(ready))
        for later, needed in enumerate(waits_for):
            if index in needed:
                needed.discard(index)
                if not needed:
                    heappush(ready, later)
    cyclic = _cycle_violations(waits_for, set(range(len(calls))).difference(order))
    if unknown or cyclic:
        raise errors.group_invalid([*unknown, *cyclic])
    return order


def _cycle_violations(waits_for: Sequence[set[int]], left: Iterable[int]) -> list[Violation]:
    """Return a violation for each call on a cycle; calls that only depend on a cycle have none."""
    message = "depends on itself, directly or through others"
    return [
        Violation(f"calls[{index}].depends_on", "depends_on.acyclic", message)
        for index in sorted(left)
        if _reaches(index, waits_for)
    ]


def _reaches(index: int, waits_for: Sequence[set[int]]) -> bool:
    seen: set[int] = set()
    waiting = list(waits_for[index])
    while waiting:
        present = waiting.pop()
        if present == index:
            return True
        if present not in seen:
            seen.add(present)
            waiting.extend(waits_for[present])
    return False


def _tool(request: Request, tools: ToolView) -> Tool | None:
    try:
        return resolve_granted(tools, request)
    except MeshError:
        return None


def _footprint(request: Request, tool: Tool | None) -> Footprint | None:
    if tool is None:
        return None
    if tool.resources is None and not any("{" in effect.resource for effect in tool.effects):
        # Arguments do not matter.
        return footprint_of(tool, {})
    try:
        return footprint_of(tool, parse_object(request.arguments))
    except MeshError:
        # The call itself will fail with the error; until then it may touch anything that its tool may.
        return footprint_of(tool, {})


def _in_order(one: Footprint | None, other: Footprint | None) -> bool:
    if one is None or other is None:
        return False
    return (one.alone and other.alone) or conflicts(one, other)
