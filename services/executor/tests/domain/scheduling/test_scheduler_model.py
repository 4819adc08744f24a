"""The scheduler against a model that keeps everything in one list and looks at all of it each time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.errors import MeshError
from libs.common.json.resource_pointers import ResourcePointers
from libs.common.testing.clock import ManualClock
from services.executor.domain.scheduling.conflicts import conflicts
from services.executor.domain.scheduling.scheduler import Bounds, Scheduler, Slot
from services.executor.domain.tool import Effect, Mutation, Placement, Tool
from services.executor.tests.samples import a_tool

AGING = 1.0
BOUNDS = Bounds(tool=2, service=2, sandboxes=3, waiting=9, waiting_per_tool=6, aging=AGING)
_RESOURCES = ResourcePointers({"properties": {"id": {"x-resource": "order"}}})


def _tool(name: str, **changes: object) -> Tool:
    placement = changes.pop("placement", Placement(concurrency_safe=True))
    return a_tool(name=f"tools/shop.{name}/versions/1", qualified=f"shop.{name}", placement=placement, **changes)


def _writer(name: str, pattern: str, **changes: object) -> Tool:
    return _tool(name, mutation=Mutation.WRITE_REVERSIBLE, effects=(Effect(pattern, "update"),), **changes)


TOOLS = [
    _tool("alone", placement=Placement()),
    _tool("alone_by_input", placement=Placement(), closed_world=True, resources=_RESOURCES),
    _tool("single", placement=Placement(concurrency_safe=True, max_concurrency=1)),
    _tool("mail", placement=Placement(concurrency_safe=True, service="mail")),
    _tool("mail_outside", placement=Placement(concurrency_safe=True, service="mail"), runner="python"),
    _tool("outside", runner="command"),
    _tool("look", resources=_RESOURCES),
    _writer("put", "order:{id}"),
    _writer("sweep", "order:*", runner="python"),
]


@dataclass
class Guest:
    """One call: when it came and how urgent it is."""

    turn: Slot
    tool: Tool
    priority: int
    came: float
    number: int

    @property
    def rank(self) -> tuple[float, int]:
        return (self.came - self.priority * AGING, self.number)


class Model:
    """Calls in a scheduler, and everything that must hold about them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock, BOUNDS)
        self.running: list[Guest] = []
        self.waiting: list[Guest] = []
        self.number = 0

    def come(self, tool: Tool, resource: int, priority: int) -> None:
        self.number += 1
        turn = self.scheduler.slot(tool, {"id": resource}, priority)
        guest = Guest(turn, tool, priority, self.clock.monotonic(), self.number)
        self.waiting.append(guest)
        try:
            self.scheduler.enter(turn)
        except MeshError:
            self.waiting.remove(guest)
            line = [other for other in self.waiting if other.tool is tool]
            assert len(self.waiting) == BOUNDS.waiting or len(line) == BOUNDS.waiting_per_tool
        self.look()

    def go(self, guest: Guest) -> None:
        (self.running if guest in self.running else self.waiting).remove(guest)
        self.scheduler.leave(guest.turn)
        self.look()

    def look(self) -> None:
        begun = [guest for guest in self.waiting if guest.turn.running]
        for guest in begun:
            self._nobody_was_passed_over(guest, [other for other in self.waiting if other not in begun])
        self.waiting = [guest for guest in self.waiting if guest not in begun]
        self.running += begun
        assert all(guest.turn.running for guest in self.running)
        assert self.scheduler.length == len(self.waiting)
        self._no_bound_is_broken()
        self._nobody_waits_who_could_begin()

    def _nobody_was_passed_over(self, begun: Guest, waiting: list[Guest]) -> None:
        for other in waiting:
            if begun.came > other.came + (10 - other.priority) * AGING:
                assert not conflicts(begun.turn.footprint, other.turn.footprint)
                assert begun.tool is not other.tool or self._held_up(other, waiting)

    def _held_up(self, guest: Guest, waiting: list[Guest]) -> bool:
        before = [other for other in waiting if other.rank < guest.rank]
        return any(conflicts(guest.turn.footprint, other.turn.footprint) for other in [*self.running, *before])

    def _no_bound_is_broken(self) -> None:
        for tool in TOOLS:
            assert self._at(("tool", tool.qualified)) <= (tool.placement.max_concurrency or BOUNDS.tool)
        assert self._at(("service", "mail")) <= BOUNDS.service
        assert self._at(("sandboxes", "")) <= BOUNDS.sandboxes
        assert len(self.waiting) <= BOUNDS.waiting
        for place, one in enumerate(self.running):
            for other in self.running[place + 1 :]:
                assert not conflicts(one.turn.footprint, other.turn.footprint)

    def _nobody_waits_who_could_begin(self) -> None:
        kept: dict[tuple[str, str], int] = {}
        by_rank = sorted(self.waiting, key=lambda guest: guest.rank)
        for guest in by_rank:
            if self._held_up(guest, by_rank):
                continue
            full = False
            for place, capacity in _places(guest.tool):
                full = self._at(place) + kept.get(place, 0) >= capacity
                if full:
                    break
                kept[place] = kept.get(place, 0) + 1
            assert full

    def _at(self, place: tuple[str, str]) -> int:
        return sum(place in dict(_places(guest.tool)) for guest in self.running)


def _places(tool: Tool) -> list[tuple[tuple[str, str], int]]:
    placement = tool.placement
    places = [(("tool", tool.qualified), placement.max_concurrency or BOUNDS.tool)]
    places += [(("service", placement.service), BOUNDS.service)] if placement.service else []
    return places + ([] if tool.runner == "builtin" else [(("sandboxes", ""), BOUNDS.sandboxes)])


step = st.one_of(
    st.tuples(st.just("come"), st.sampled_from(TOOLS), st.integers(1, 3), st.integers(1, 10)),
    st.tuples(st.just("come"), st.sampled_from(TOOLS), st.integers(1, 3), st.integers(1, 10)),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("give up"), st.integers(0, 20)),
    st.tuples(st.just("time"), st.integers(1, 12)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, max_size=60))
def test_the_guarantees_hold_for_any_arrivals_and_everything_drains(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    asyncio.run(_follow(steps))


async def _follow(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    model = Model()
    for kind, *told in steps:
        if kind == "come":
            model.come(*told)
        elif kind == "time":
            model.clock.advance(told[0])
        elif kind == "end" and model.running:
            model.go(model.running[told[0] % len(model.running)])
        elif kind == "give up" and model.waiting:
            model.go(model.waiting[told[0] % len(model.waiting)])
    while model.running:
        model.go(model.running[0])
    assert model.waiting == []
    remains = (model.scheduler._present, model.scheduler._used, model.scheduler._waiting, model.scheduler._ready)
    assert not any(remains)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10), st.lists(st.tuples(st.integers(1, 10), st.integers(0, 3)), min_size=30, max_size=30))
def test_a_call_begins_before_everybody_who_came_too_late_to_overtake_it(
    priority: int, others: list[tuple[int, int]]
) -> None:
    asyncio.run(_endure(priority, others))


async def _endure(priority: int, others: list[tuple[int, int]]) -> None:
    """One place, and always somebody new who wants it."""
    model, single = Model(), TOOLS[2]
    model.come(single, 1, 5)
    model.come(single, 1, priority)
    patient = model.waiting[0]
    for urgency, pause in others:
        model.clock.advance(pause)
        if len(model.waiting) < BOUNDS.waiting_per_tool:
            model.come(single, 1, urgency)
        model.go(model.running[0])
        if patient in model.running:
            return
        assert all(guest.came <= patient.came + (10 - priority) * AGING for guest in model.running)
