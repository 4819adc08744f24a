"""Calls get their turn: within every bound, in a fair order, and without holding up whom they need not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.resource_pointers import ResourcePointers
from libs.common.testing.clock import ManualClock
from services.executor.domain.scheduling.scheduler import NO_OWNER, Bounds, Owner, Scheduler
from services.executor.domain.tool import Effect, Mutation, Placement, Tool
from services.executor.tests.samples import a_tool


class Watch:
    """Notes what it sees."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, float, bool]] = []
        self.refusals: list[str] = []

    def waited(self, tool: Tool, seconds: float, *, began: bool) -> None:
        self.waits.append((tool.qualified, seconds, began))

    def refused(self, tool: Tool) -> None:
        self.refusals.append(tool.qualified)


class Yard:
    """A scheduler, its clock, and calls that run until the test ends them."""

    def __init__(self, **bounds: Any) -> None:
        self.clock, self.watch = ManualClock(), Watch()
        self.scheduler = Scheduler(self.clock, Bounds(**bounds), self.watch)
        self.began: list[str] = []
        self.waited: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(
        self, name: str, tool: Tool, priority: int = 0, owner: Owner = NO_OWNER, **arguments: Any
    ) -> asyncio.Task[None]:
        """Let a call come; return once it runs, waits or was refused."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = task = asyncio.create_task(self._call(name, tool, priority, owner, arguments))
        await settle()
        return task

    async def end(self, name: str) -> None:
        """Let a call end that runs."""
        self._ends[name].set()
        await self._tasks[name]
        await settle()

    async def cancel(self, name: str) -> None:
        """Let a call give up."""
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await settle()

    async def _call(self, name: str, tool: Tool, priority: int, owner: Owner, arguments: dict[str, Any]) -> None:
        async with self.scheduler.slot(tool, arguments, priority, lambda: self.waited.append(name), owner):
            self.began.append(name)
            await self._ends[name].wait()


async def settle() -> None:
    """Let all tasks proceed that can: nothing here waits for time."""
    for _ in range(5):
        await asyncio.sleep(0)


def tool(name: str, *, safe: bool = True, **changes: Any) -> Tool:
    """A tool in process that may overlap itself."""
    placement = Placement(concurrency_safe=safe, **changes.pop("placement", {}))
    return a_tool(name=f"tools/shop.{name}/versions/1.0.0", qualified=f"shop.{name}", placement=placement, **changes)


def limited(name: str, most: int = 1, **changes: Any) -> Tool:
    return tool(name, placement={"max_concurrency": most, **changes.pop("placement", {})}, **changes)


def writer(name: str, pattern: str, **changes: Any) -> Tool:
    return tool(name, mutation=Mutation.WRITE_REVERSIBLE, effects=(Effect(pattern, "update"),), **changes)


def test_an_unlimited_tool_needs_no_slot() -> None:
    assert Scheduler.needs_no_slot(tool("echo"))


@pytest.mark.parametrize(
    "counted",
    [
        tool("a", safe=False),
        limited("a"),
        tool("a", placement={"service": "mail"}),
        tool("a", runner="python"),
        writer("a", "order:*"),
        tool("a", resources=ResourcePointers({})),
    ],
    ids=["not safe", "limited", "service", "sandbox", "writes", "reads"],
)
def test_every_other_tool_does(counted: Tool) -> None:
    assert not Scheduler.needs_no_slot(counted)


async def test_a_call_with_a_free_slot_begins_at_once() -> None:
    yard = Yard()
    await yard.come("first", limited("a"))
    assert (yard.began, yard.waited, yard.scheduler.length) == (["first"], [], 0)
    await yard.end("first")
    assert yard.watch.waits == []


async def test_a_tools_own_limit_holds_and_the_next_begins_when_one_ends() -> None:
    yard = Yard()
    for name in ("one", "two", "three", "four"):
        await yard.come(name, limited("a", 2))
    assert (yard.began, yard.waited, yard.scheduler.length) == (["one", "two"], ["three", "four"], 2)
    await yard.end("two")
    assert yard.began == ["one", "two", "three"]


async def test_a_tool_without_a_limit_has_that_of_the_mesh() -> None:
    yard = Yard(tool=2)
    for name in ("one", "two", "three"):
        await yard.come(name, tool("a", runner="python"))
    assert yard.began == ["one", "two"]


async def test_a_service_has_a_bulkhead_for_all_of_its_tools() -> None:
    yard = Yard(service=1)
    mail, letters = (tool(name, placement={"service": "mail"}) for name in ("send", "fetch"))
    await yard.come("send", mail)
    await yard.come("fetch", letters)
    await yard.come("other", tool("other", placement={"service": "maps"}))
    assert yard.began == ["send", "other"]
    await yard.end("send")
    assert yard.began == ["send", "other", "fetch"]


async def test_sandboxes_are_counted_together_and_what_runs_in_process_is_not() -> None:
    yard = Yard(sandboxes=1)
    await yard.come("python", tool("a", runner="python"))
    await yard.come("command", tool("b", runner="command"))
    await yard.come("builtin", limited("c"))
    assert yard.began == ["python", "builtin"]


async def test_calls_of_a_tool_that_is_not_safe_run_one_by_one_in_their_order() -> None:
    yard = Yard()
    for name in ("one", "two", "three"):
        await yard.come(name, tool("a", safe=False))
    assert yard.began == ["one"]
    await yard.end("one")
    assert yard.began == ["one", "two"]


async def test_writers_of_one_resource_are_serialised_across_tools() -> None:
    yard = Yard()
    await yard.come("seven", writer("set", "order:{id}"), id=7)
    await yard.come("sweep", writer("sweep", "order:*"))
    await yard.come("mail", writer("mail", "mail:*"))
    assert yard.began == ["seven", "mail"]
    await yard.end("seven")
    assert yard.began == ["seven", "mail", "sweep"]


async def test_a_writer_that_waits_is_not_overtaken_by_further_readers() -> None:
    yard = Yard()
    look = tool("look", resources=ResourcePointers({"properties": {"id": {"x-resource": "order"}}}))
    await yard.come("reads", look, id=7)
    await yard.come("writes", writer("set", "order:{id}"), id=7)
    await yard.come("reads too", look, id=7)
    await yard.come("reads another", look, id=8)
    assert yard.began == ["reads", "reads another"]
    await yard.end("reads")
    assert yard.began == ["reads", "reads another", "writes"]
    await yard.end("writes")
    assert yard.began[-1] == "reads too"


async def test_urgent_calls_go_first_and_equals_keep_their_order() -> None:
    yard = Yard()
    await yard.come("runs", limited("a"))
    for name, priority in (("low", 1), ("own", 0), ("five", 5), ("high", 10)):
        await yard.come(name, limited("a"), priority)
    for name in ("runs", "high", "own", "five"):
        await yard.end(name)
    assert yard.began == ["runs", "high", "own", "five", "low"]


@pytest.mark.parametrize(("after", "first"), [(4.4, "urgent"), (4.6, "patient")])
async def test_nine_levels_of_waiting_make_up_for_nine_levels_of_priority(after: float, first: str) -> None:
    yard = Yard(aging=0.5)
    await yard.come("runs", limited("a"))
    await yard.come("patient", limited("a"), 1)
    yard.clock.advance(after)
    await yard.come("urgent", limited("a"), 10)
    await yard.end("runs")
    assert yard.began == ["runs", first]


async def test_a_full_tool_holds_up_no_other_tool() -> None:
    yard = Yard(sandboxes=2)
    slow, quick = limited("slow", runner="python"), tool("quick", runner="python")
    for name in ("slow", "slow again", "slow once more"):
        await yard.come(name, slow, 10)
    await yard.come("quick", quick, 1)
    assert yard.began == ["slow", "quick"]


async def test_a_conflicting_call_takes_no_slot_from_others() -> None:
    yard = Yard(sandboxes=2)
    await yard.come("writes", writer("set", "order:1", runner="python"))
    await yard.come("waits", writer("sweep", "order:*", runner="python"), 10)
    await yard.come("other", tool("other", runner="python"), 1)
    assert yard.began == ["writes", "other"]


async def test_a_call_that_needs_two_slots_is_not_starved_by_those_that_need_one() -> None:
    yard = Yard(service=1, sandboxes=1)
    mail = tool("mail", placement={"service": "mail"})
    both = tool("both", placement={"service": "mail"}, runner="python")
    await yard.come("in service", mail)
    await yard.come("in sandbox", tool("run", runner="python"))
    await yard.come("both", both)
    await yard.come("next in service", mail)
    await yard.come("next in sandbox", tool("run", runner="python"))
    await yard.end("in service")
    assert "next in service" not in yard.began
    await yard.end("in sandbox")
    assert yard.began == ["in service", "in sandbox", "both"]


async def test_a_canceled_waiter_leaves_at_once_and_frees_those_behind() -> None:
    yard = Yard()
    look = tool("look", resources=ResourcePointers({"properties": {"id": {"x-resource": "order"}}}))
    await yard.come("reads", look, id=7)
    await yard.come("writes", writer("set", "order:{id}"), id=7)
    await yard.come("reads too", look, id=7)
    yard.clock.advance(3)
    await yard.cancel("writes")
    assert yard.began == ["reads", "reads too"]
    assert yard.watch.waits == [("shop.set", 3.0, False), ("shop.look", 3.0, True)]
    assert yard.scheduler.length == 0


async def test_a_place_that_is_given_to_whom_gives_up_in_that_moment_is_not_lost() -> None:
    yard = Yard()
    runs = yard.scheduler.slot(limited("a"), {})
    assert yard.scheduler.enter(runs)
    given = await yard.come("given", limited("a"))
    await yard.come("next", limited("a"))
    yard.scheduler.leave(runs)
    given.cancel()
    await settle()
    assert given.cancelled()
    assert yard.began == ["next"]


async def test_a_call_that_fails_gives_its_places_back() -> None:
    yard = Yard()
    with pytest.raises(LookupError):
        async with yard.scheduler.slot(limited("a"), {}):
            raise LookupError
    await yard.come("next", limited("a"))
    assert yard.began == ["next"]


async def test_a_call_whose_waiting_cannot_be_noted_does_not_stay_in_line() -> None:
    yard = Yard()

    def fail() -> None:
        raise LookupError

    await yard.come("runs", limited("a"))
    with pytest.raises(LookupError):
        async with yard.scheduler.slot(limited("a"), {}, 0, fail):
            raise AssertionError
    assert yard.scheduler.length == 0


@pytest.mark.parametrize("bound", ["waiting", "waiting_per_tool", "waiting_per_tenant"])
async def test_beyond_what_may_wait_calls_are_refused_and_told_when_to_come_back(bound: str) -> None:
    yard = Yard(**{bound: 1})
    await yard.come("runs", limited("a"))
    await yard.come("waits", limited("a"), 1)
    yard.clock.advance(7)
    refused = await yard.come("one too many", limited("a"), 10)
    error = refused.exception()
    assert isinstance(error, MeshError)
    assert (error.reason, error.retry_after) == (Reason.QUEUE_FULL, 7.0)
    assert (yard.watch.refusals, yard.waited, yard.scheduler.length) == (["shop.a"], ["waits"], 1)
    await yard.end("runs")
    assert yard.began == ["runs", "waits"]


async def test_a_full_queue_refuses_no_call_that_need_not_wait() -> None:
    yard = Yard(waiting=1)
    await yard.come("runs", limited("a"))
    await yard.come("waits", limited("a"))
    await yard.come("other", limited("b"))
    assert yard.began == ["runs", "other"]
    refused = await yard.come("refused", limited("b"))
    error = refused.exception()
    assert isinstance(error, MeshError)
    assert error.retry_after == 1.0


async def test_a_tool_has_room_to_wait_whatever_another_ones_calls_take() -> None:
    yard = Yard(waiting_per_tool=1)
    for name in ("a", "b"):
        await yard.come(f"{name} runs", limited(name))
        await yard.come(f"{name} waits", limited(name))
    assert yard.waited == ["a waits", "b waits"]


async def test_a_deadline_that_ends_while_waiting_is_the_callers_own() -> None:
    yard = Yard()
    await yard.come("runs", limited("a"))

    async def hurried(end: Callable[[], None]) -> None:
        async with asyncio.timeout(0):
            async with yard.scheduler.slot(limited("a"), {}, 0, end):
                raise AssertionError

    told: list[None] = []
    with pytest.raises(TimeoutError):
        await hurried(lambda: told.append(None))
    assert (len(told), yard.scheduler.length) == (1, 0)


ADA, BOB, EVE = Owner("acme", "ada"), Owner("acme", "bob"), Owner("umbrella", "eve")


@pytest.mark.parametrize("contended", [limited("a"), tool("a", safe=False)], ids=["capacity", "conflict"])
async def test_tenants_and_their_subjects_take_turns(contended: Tool) -> None:
    yard = Yard()
    await yard.come("runs", contended, 0, ADA)
    for name, owner in (("ada 1", ADA), ("ada 2", ADA), ("ada 3", ADA), ("bob", BOB), ("eve 1", EVE), ("eve 2", EVE)):
        await yard.come(name, contended, 10 if owner is ADA else 1, owner)
    for name in ("runs", "eve 1", "bob", "eve 2", "ada 1", "ada 2"):
        await yard.end(name)
    assert yard.began == ["runs", "eve 1", "bob", "eve 2", "ada 1", "ada 2", "ada 3"]


async def test_one_tenant_leaves_a_quarter_of_the_sandboxes_to_others() -> None:
    yard, outside = Yard(sandboxes=4), tool("a", runner="python")
    for number in range(4):
        await yard.come(f"ada {number}", outside, 0, ADA)
    await yard.come("eve", outside, 0, EVE)
    assert yard.began == ["ada 0", "ada 1", "ada 2", "eve"]


async def test_a_tenant_beyond_its_share_of_the_queue_takes_no_room_from_others() -> None:
    yard = Yard(waiting_per_tenant=1)
    await yard.come("runs", limited("a"), 0, ADA)
    await yard.come("waits", limited("a"), 0, ADA)
    refused = await yard.come("refused", limited("a"), 0, BOB)
    await yard.come("eve", limited("a"), 0, EVE)
    assert isinstance(refused.exception(), MeshError)
    assert yard.waited == ["waits", "eve"]


async def test_a_tenant_beyond_its_share_of_the_sandboxes_reserves_nothing_from_others() -> None:
    yard = Yard(sandboxes=4)
    for number in range(3):
        await yard.come(f"ada {number}", tool("a", runner="python"), 0, ADA)
    await yard.come("ada waits", limited("b", runner="python"), 0, ADA)
    await yard.come("eve", limited("b", runner="python"), 0, EVE)
    assert yard.began[-1] == "eve"
