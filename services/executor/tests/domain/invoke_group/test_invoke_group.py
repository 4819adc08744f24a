"""Groups of calls: what runs at once, what waits, and whom a failure stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.executor.domain import errors
from services.executor.domain.invoke_group.invoke_group import MAX_RUNNING, GroupOutcome, InvokeGroup
from services.executor.domain.invoke_group.plan import GroupCall
from services.executor.domain.model import Request, Result
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Placement, SiblingFailure
from services.executor.tests.fakes import KnownTools
from services.executor.tests.samples import a_request, a_result, a_tool


class OneByOne:
    """Calls that end when the test says so: `task_id` tells them apart."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.never: dict[str, MeshError] = {}
        self.canceled: list[str] = []
        self.given_up_on: list[str] = []
        self.closing: set[str] = set()
        self._ends: dict[str, asyncio.Future[Result]] = {}
        self._requests: dict[str, Request] = {}

    async def execute(self, request: Request) -> Result:
        self.begun.append(request.task_id)
        self._requests[request.task_id] = request
        end = self._ends[request.task_id] = asyncio.get_running_loop().create_future()
        try:
            return await end
        except asyncio.CancelledError:
            self.canceled.append(request.task_id)
            raise

    def stop(self, request: Request, error: MeshError) -> bool:
        if request.task_id in self.closing:
            return False
        assert self._requests[request.task_id] is request
        self._ends[request.task_id].set_exception(error)
        return True

    async def record_not_started(self, request: Request, error: MeshError) -> MeshError:
        error.invocation_id = f"never-{request.task_id}"
        self.never[request.task_id] = error
        return error

    async def record_abandoned(self, request: Request) -> None:
        self.given_up_on.append(request.task_id)

    async def succeed(self, name: str, **changes: Any) -> None:
        self._ends[name].set_result(a_result(invocation_id=name, **changes))
        await settle()

    async def fail(self, name: str) -> None:
        self._ends[name].set_exception(errors.execution_failed("no"))
        await settle()


async def settle() -> None:
    """Let all tasks proceed that can: nothing here waits for time."""
    for _ in range(10):
        await asyncio.sleep(0)


TOOLS = KnownTools(
    a_tool(placement=Placement(concurrency_safe=True)),
    a_tool(qualified="core.ask", name="tools/core.ask/versions/1.0.0", placement=Placement()),
)


class Party:
    """A group under way."""

    def __init__(self, *calls: GroupCall) -> None:
        self.calls = OneByOne()
        self.revoked = False
        group = InvokeGroup(self.calls, TOOLS, ManualClock(), HeavyWork(), revoked=lambda caller: self.revoked)
        self.task = asyncio.ensure_future(group.execute(calls))

    async def outcomes(self) -> list[Any]:
        """Each outcome in short: the invocation of a success, the reason of a failure."""
        return [_short(outcome) for outcome in await self.task]


def _short(outcome: GroupOutcome) -> Any:
    return outcome.result.invocation_id if outcome.result else outcome.error and outcome.error.reason


async def party(*calls: GroupCall) -> Party:
    begun = Party(*calls)
    await settle()
    return begun


def call(name: str, *depends_on: int, tool: str = "say", on_failure: SiblingFailure | None = None) -> GroupCall:
    return GroupCall(a_request(tool=tool, task_id=name), depends_on, on_failure)


STRICT = SiblingFailure.CANCEL_SIBLINGS


async def test_safe_calls_run_at_once_and_outcomes_keep_the_order_of_the_calls() -> None:
    group = await party(call("a"), call("b"), call("c"))
    assert group.calls.begun == ["a", "b", "c"]
    for name in ("c", "a", "b"):
        await group.calls.succeed(name)
    assert await group.outcomes() == ["a", "b", "c"]


async def test_calls_that_are_not_safe_run_one_after_the_other_even_after_a_failure() -> None:
    group = await party(call("a", tool="ask"), call("b", tool="ask"))
    assert group.calls.begun == ["a"]
    await group.calls.fail("a")
    assert group.calls.begun == ["a", "b"]
    await group.calls.succeed("b")
    assert await group.outcomes() == [Reason.EXECUTION_FAILED, "b"]


async def test_a_call_begins_once_all_it_depends_on_has_succeeded() -> None:
    group = await party(call("last", 1, 2), call("a"), call("b"))
    await group.calls.succeed("b")
    assert "last" not in group.calls.begun
    await group.calls.succeed("a")
    assert "last" in group.calls.begun
    await group.calls.succeed("last")
    assert await group.outcomes() == ["last", "a", "b"]


@pytest.mark.parametrize("policy", [SiblingFailure.IGNORE, SiblingFailure.CANCEL_DEPENDENT])
async def test_a_call_that_depends_on_a_failure_never_begins_and_is_recorded(policy: SiblingFailure) -> None:
    group = await party(call("a", on_failure=policy), call("b", 0), call("c", 1), call("d"))
    await group.calls.fail("a")
    await group.calls.succeed("d")
    assert await group.outcomes() == [Reason.EXECUTION_FAILED, Reason.SIBLING_CANCELED, Reason.SIBLING_CANCELED, "d"]
    assert group.calls.begun == ["a", "d"]
    assert group.calls.never["b"].metadata == {"sibling": "0", "sibling_reason": "EXECUTION_FAILED"}
    assert group.calls.never["c"].metadata == {"sibling": "1", "sibling_reason": "SIBLING_CANCELED"}


async def test_a_failure_that_says_so_stops_what_runs_and_what_would_have_begun() -> None:
    group = await party(
        call("done"), call("fails", on_failure=STRICT), call("runs"), call("waits", 2), call("later", 3)
    )
    await group.calls.succeed("done")
    await group.calls.fail("fails")
    stopped = [Reason.SIBLING_CANCELED] * 3
    assert await group.outcomes() == ["done", Reason.EXECUTION_FAILED, *stopped]
    assert group.calls.begun == ["done", "fails", "runs"]
    assert set(group.calls.never) == {"waits", "later"}
    outcomes = await group.task
    assert all(outcome.error and outcome.error.metadata["sibling"] == "1" for outcome in outcomes[2:])


async def test_a_stopped_call_did_not_fail_and_stops_no_other() -> None:
    group = await party(call("a"), call("b", 0, on_failure=STRICT), call("c"))
    await group.calls.fail("a")
    assert not group.task.done()
    await group.calls.succeed("c")
    assert await group.outcomes() == [Reason.EXECUTION_FAILED, Reason.SIBLING_CANCELED, "c"]


async def test_a_call_that_is_just_ending_keeps_its_own_ending() -> None:
    group = await party(call("a", on_failure=STRICT), call("b"))
    group.calls.closing.add("b")
    await group.calls.fail("a")
    await group.calls.succeed("b")
    assert await group.outcomes() == [Reason.EXECUTION_FAILED, "b"]


async def test_a_caller_that_leaves_stops_everything() -> None:
    group = await party(call("a"), call("b"), call("c", 0))
    group.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await group.task
    assert (sorted(group.calls.canceled), group.calls.begun) == (["a", "b"], ["a", "b"])
    assert group.calls.given_up_on == ["c"]


async def test_nothing_begins_any_more_on_authority_that_was_taken_back() -> None:
    group = await party(call("a"), call("b", 0), call("c", tool="ask"), call("d", tool="ask"))
    group.revoked = True
    await group.calls.succeed("a")
    await group.calls.succeed("c")
    assert await group.outcomes() == ["a", Reason.TOKEN_REVOKED, "c", Reason.TOKEN_REVOKED]
    assert (group.calls.begun, set(group.calls.never)) == (["a", "c"], {"b", "d"})


async def test_nothing_begins_in_a_group_that_makes_no_sense() -> None:
    group = await party(call("a"), call("b", 1))
    with pytest.raises(MeshError) as caught:
        await group.task
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert group.calls.begun == []


async def test_a_failure_still_has_what_a_result_in_its_place_needs() -> None:
    group = await party(call("a"), call("b", tool="missing"))
    await group.calls.fail("a")
    await group.calls.fail("b")
    known, unknown = await group.task
    assert known.tool is TOOLS.tools["say"]
    assert unknown.tool is None
    assert known.result_id
    assert known.result_id != unknown.result_id


async def test_results_that_do_not_fit_into_one_answer_are_left_out_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.executor.domain.invoke_group.invoke_group.MAX_BYTES", 40)
    group = await party(call("a"), call("b"), call("c"), call("d"))
    for name, content in (("a", b"x" * 30), ("b", b"x" * 11), ("c", b"x" * 9), ("d", b"")):
        await group.calls.succeed(name, content=content, context=("y",) if name == "c" else (), evidence=("records/1",))
    assert await group.outcomes() == ["a", Reason.RESULT_TOO_LARGE, "c", "d"]
    left_out = (await group.task)[1].error
    assert left_out is not None
    assert (left_out.invocation_id, left_out.evidence) == ("b", ("records/1",))
    assert left_out.metadata == {"size_bytes": "11", "limit_bytes": "10", "tool_ran": "true"}


async def test_of_a_large_group_a_few_calls_run_at_once() -> None:
    names = [str(number) for number in range(MAX_RUNNING + 2)]
    group = await party(*(call(name) for name in names))
    assert group.calls.begun == names[:MAX_RUNNING]
    await group.calls.succeed("0")
    assert group.calls.begun == names[: MAX_RUNNING + 1]
    group.task.cancel()
    await asyncio.wait({group.task})
    assert group.calls.given_up_on == names[MAX_RUNNING + 1 :]
