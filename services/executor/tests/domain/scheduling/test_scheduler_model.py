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
from services.executor.domain.scheduling.scheduler import Bounds, Owner, Scheduler, Slot
from services.executor.domain.tool import Effect, Mutation, Placement, Tool
from services.executor.tests.samples import a_tool

AGING = 1.0
BOUNDS = Bounds(tool=2, service=2, sandboxes=4, waiting=12, waiting_per_tool=8, waiting_per_tenant=7, aging=AGING)
# Of four sandboxes a tenant has three at most.
SHARE = 3
OWNERS = [Owner("acme", "ada"), Owner("acme", "bob"), Owner("umbrella", "eve")]
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


@dataclass(eq=False)
class Guest:
    """One call: whose it is, when it came and how urgent it is."""

    turn: Slot
    tool: Tool
    owner: Owner
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
        self.served: dict[object, int] = {}
        self.turn = 0

    def come(self, tool: Tool, resource: int, priority: int, owner: Owner = OWNERS[0]) -> None:
        self.number += 1
        turn = self.scheduler.slot(tool, {"id": resource}, priority, owner=owner)
        guest = Guest(turn, tool, owner, priority, self.clock.monotonic(), self.number)
        self.waiting.append(guest)
        expected = self._begin()
        try:
            self.scheduler.enter(turn)
        except MeshError:
            self.waiting.remove(guest)
            assert self._no_room_for(guest)
        self.look(expected)

    def go(self, guest: Guest) -> None:
        (self.running if guest in self.running else self.waiting).remove(guest)
        expected = self._begin()
        self.scheduler.leave(guest.turn)
        self.look(expected)

    def look(self, expected: list[Guest]) -> None:
        assert [guest for guest in [*self.waiting, *expected] if guest.turn.running] == expected
        assert all(guest.turn.running for guest in self.running)
        assert self.scheduler.length == len(self.waiting)
        self._no_bound_is_broken()

    def _begin(self) -> list[Guest]:
        """Begin every call that can, one after the other; return those."""
        begun: list[Guest] = []
        kept: list[tuple[tuple[str, str], str | None]] = []
        full: set[tuple[str, str | None]] = set()
        passed: list[Guest] = []
        for guest in self._in_turn():
            against = None if self._has_share(guest) else guest.owner.tenant
            held_up = any(conflicts(guest.turn.footprint, other.turn.footprint) for other in [*self.running, *passed])
            lacks = None if held_up else self._lacks(guest, kept)
            if held_up or lacks is not None:
                passed.append(guest)
                if lacks is not None and not {(guest.tool.name, None), (guest.tool.name, against)} & full:
                    full.add((guest.tool.name, against))
                    kept += [(place, against) for place, _ in _places(guest.tool)[:lacks]]
                continue
            self.turn += 1
            self.served |= {guest.owner.tenant: self.turn, guest.owner: self.turn}
            self.waiting.remove(guest)
            self.running.append(guest)
            begun.append(guest)
        return begun

    def _in_turn(self) -> list[Guest]:
        """All waiting calls: of the tenant served longest ago, the subject served longest ago, its first call."""
        served, turn, left, order = dict(self.served), self.turn, list(self.waiting), list[Guest]()
        while left:
            firsts = {guest.owner: min((g for g in left if g.owner == guest.owner), key=_rank) for guest in left}
            of_tenants = {
                tenant: min(
                    (guest for owner, guest in firsts.items() if owner.tenant == tenant),
                    key=lambda guest: (served.get(guest.owner, 0), guest.rank),
                )
                for tenant in {owner.tenant for owner in firsts}
            }
            first = min(of_tenants.values(), key=lambda guest: (served.get(guest.owner.tenant, 0), guest.rank))
            turn += 1
            served |= {first.owner.tenant: turn, first.owner: turn}
            left.remove(first)
            order.append(first)
        return order

    def _lacks(self, guest: Guest, kept: list[tuple[tuple[str, str], str | None]]) -> int | None:
        """Return the first place that is full for a call, or None."""
        for number, (place, capacity) in enumerate(_places(guest.tool)):
            taken = sum(where == place and tenant in (None, guest.owner.tenant) for where, tenant in kept)
            if self._at(place) + taken >= capacity or (place[0] == "sandboxes" and not self._has_share(guest)):
                return number
        return None

    def _has_share(self, guest: Guest) -> bool:
        mine = [other for other in self.running if other.owner.tenant == guest.owner.tenant]
        return guest.tool.runner == "builtin" or sum(other.tool.runner != "builtin" for other in mine) < SHARE

    def _no_room_for(self, guest: Guest) -> bool:
        line = [other for other in self.waiting if other.tool is guest.tool]
        neighbours = [other for other in self.waiting if other.owner.tenant == guest.owner.tenant]
        return (
            len(self.waiting) == BOUNDS.waiting
            or len(line) == BOUNDS.waiting_per_tool
            or len(neighbours) == BOUNDS.waiting_per_tenant
        )

    def _no_bound_is_broken(self) -> None:
        for tool in TOOLS:
            assert self._at(("tool", tool.qualified)) <= (tool.placement.max_concurrency or BOUNDS.tool)
        assert self._at(("service", "mail")) <= BOUNDS.service
        assert self._at(("sandboxes", "")) <= BOUNDS.sandboxes
        assert len(self.waiting) <= BOUNDS.waiting
        for place, one in enumerate(self.running):
            for other in self.running[place + 1 :]:
                assert not conflicts(one.turn.footprint, other.turn.footprint)

    def _at(self, place: tuple[str, str]) -> int:
        return sum(place in dict(_places(guest.tool)) for guest in self.running)


def _rank(guest: Guest) -> tuple[float, int]:
    return guest.rank


def _places(tool: Tool) -> list[tuple[tuple[str, str], int]]:
    placement = tool.placement
    places = [(("tool", tool.qualified), placement.max_concurrency or BOUNDS.tool)]
    places += [(("service", placement.service), BOUNDS.service)] if placement.service else []
    return places + ([] if tool.runner == "builtin" else [(("sandboxes", ""), BOUNDS.sandboxes)])


step = st.one_of(
    st.tuples(st.just("come"), st.sampled_from(TOOLS), st.integers(1, 3), st.integers(1, 10), st.sampled_from(OWNERS)),
    st.tuples(st.just("come"), st.sampled_from(TOOLS), st.integers(1, 3), st.integers(1, 10), st.sampled_from(OWNERS)),
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
    remains = (model.scheduler._present, model.scheduler._used, model.scheduler._waiting, model.scheduler._queue)
    assert not any(remains)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10), st.lists(st.tuples(st.integers(1, 10), st.integers(0, 3)), min_size=30, max_size=30))
def test_a_call_begins_before_all_of_its_subject_that_came_too_late_to_overtake_it(
    priority: int, others: list[tuple[int, int]]
) -> None:
    asyncio.run(_endure(priority, others))


async def _endure(priority: int, others: list[tuple[int, int]]) -> None:
    """One slot, and always a new call that wants it."""
    model, single = Model(), TOOLS[2]
    model.come(single, 1, 5)
    model.come(single, 1, priority)
    patient = model.waiting[0]
    for urgency, pause in others:
        model.clock.advance(pause)
        if len(model.waiting) < BOUNDS.waiting_per_tenant:
            model.come(single, 1, urgency)
        model.go(model.running[0])
        if patient in model.running:
            return
        assert all(guest.came <= patient.came + (10 - priority) * AGING for guest in model.running)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(1, 10), st.integers(1, 10))
def test_a_neighbours_calls_delay_a_call_by_one_turn_however_many_and_urgent_they_are(
    many: int, theirs: int, own: int
) -> None:
    asyncio.run(_overtake(many, theirs, own))


async def _overtake(many: int, theirs: int, own: int) -> None:
    model, single = Model(), TOOLS[2]
    model.come(single, 1, 5, OWNERS[2])
    for _ in range(many):
        model.come(single, 1, theirs, OWNERS[2])
    model.come(single, 1, own, OWNERS[0])
    model.go(model.running[0])
    assert model.running[0].owner == OWNERS[0]
