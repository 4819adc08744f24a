"""What records state about effects, costs and tools that may not run: what happened, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain import errors, run_errors
from services.executor.domain.model import Record
from services.executor.domain.preview.preview_invocation import PreviewInvocation
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.tool import Effect, VersionIdentity
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_decision, a_request, a_write_tool

FIRST = Effect("file:a/1", "create", True, "", "sha256:" + "1" * 64)
SECOND = Effect("file:a/2", "update", True, "sha256:" + "2" * 64, "sha256:" + "3" * 64)
ORDER = Effect("order:7", "create")
DECLARED = (Effect("file:a/*", "create"), Effect("file:a/*", "update"), Effect("order:*", "create"))
PRICE = ("price", 5)


class Writing(World):
    """A world with a priced tool that writes two files and reports an order; each part may fail."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(a_write_tool(**{"effects": DECLARED, "dry_run": True, **changes}))
        self.policy.answer = a_decision(cost_micros=PRICE[1])
        self.value: Any = {"said": "x"}
        self.made: tuple[Effect, ...] = (FIRST, SECOND, ORDER)
        self.kept: tuple[Effect, ...] | None = (FIRST, SECOND)
        self.failed_commit: MeshError | None = None
        self.failed_run: MeshError | None = None
        self.runner.run = self._run  # type: ignore[method-assign]

    async def _run(self, tool: Any, work: RunRequest) -> RunResult:
        work.begin()
        if self.failed_run is not None:
            work.notes.effects, work.notes.costs = self.made, (("compute", 3),)
            raise self.failed_run
        costs = (("compute", 3),)
        return RunResult(
            self.value,
            self.made,
            costs,
            commit=self._commit,
            committed=lambda: self.kept,
            rollback=self._roll_back,
        )

    async def _commit(self) -> None:
        if self.failed_commit is not None:
            raise self.failed_commit

    async def _roll_back(self) -> None:
        return

    async def outcome(self, reason: Reason | None = None, **changes: Any) -> Record:
        """Make a call that ends with the reason, and return the record of its outcome."""
        request = a_request(idempotency_key="k", **changes)
        if reason is None:
            await self.invoke.execute(request)
        else:
            with pytest.raises(MeshError) as raised:
                await self.invoke.execute(request)
            assert raised.value.reason is reason
        return self.trail.durable[-1]


def told(record: Record) -> tuple[Any, ...]:
    return record.effects, record.foreseen, record.costs


async def test_a_success_states_its_effects_with_digests_and_its_costs() -> None:
    world = Writing()
    record = await world.outcome()
    assert told(record) == ((FIRST, SECOND, ORDER), (), (PRICE, ("compute", 3)))


async def test_a_replay_and_a_conflict_state_no_effects_and_no_costs() -> None:
    world = Writing()
    await world.outcome()
    replay = await world.outcome()
    assert (replay.replayed, *told(replay)) == (True, (), (), ())
    conflict = await world.outcome(Reason.IDEMPOTENCY_CONFLICT, arguments=b'{"text":"other"}')
    assert told(conflict) == ((), (), ())


async def test_a_run_that_is_rolled_back_states_what_it_changed_elsewhere_alone() -> None:
    world = Writing()
    world.value = {"wrong": 1}
    assert told(await world.outcome(Reason.RESULT_INVALID)) == ((ORDER,), (), (PRICE, ("compute", 3)))


async def test_a_failed_run_states_what_it_reported_before() -> None:
    world = Writing()
    world.failed_run = run_errors.tool_raised("ValueError")
    # A file that only the tool reports was not changed: its copy is gone.
    world.made = (ORDER, Effect("file:a/1", "create"))
    assert told(await world.outcome(Reason.EXECUTION_FAILED)) == ((ORDER,), (), (PRICE, ("compute", 3)))


async def test_a_partial_commit_states_what_was_committed() -> None:
    world = Writing()
    world.failed_commit, world.kept = run_errors.partly_kept(1, 2, "failed"), (FIRST,)
    record = await world.outcome(Reason.PARTIAL_FAILURE)
    assert told(record) == ((FIRST, ORDER), (), (PRICE, ("compute", 3)))


async def test_a_commit_of_unknown_end_states_its_effects_as_foreseen() -> None:
    world = Writing()
    world.failed_commit, world.kept = run_errors.partly_kept(0, 2, "failed"), None
    record = await world.outcome(Reason.PARTIAL_FAILURE)
    assert told(record) == ((ORDER,), (FIRST, SECOND), (PRICE, ("compute", 3)))


async def test_a_preview_foresees_and_has_no_price() -> None:
    world = Writing()
    await PreviewInvocation(world.pipeline, world.ports.previews).execute(a_request())
    assert told(world.trail.durable[-1]) == ((), (FIRST, SECOND, ORDER), (("compute", 3),))


async def test_a_refused_call_has_no_price() -> None:
    world = Writing(key_required=True)
    with pytest.raises(MeshError):
        await world.invoke.execute(a_request())
    assert told(world.trail.durable[-1]) == ((), (), ())


async def test_a_call_to_a_version_that_may_not_run_is_recorded_under_it() -> None:
    world, version = Writing(), VersionIdentity("tools/core.say/versions/1.0.0", "sha256:d")
    for failure in (errors.tool_unavailable(version, "quarantined"), errors.tool_past_sunset(version, "")):
        world.tools.failure = failure
        record = await world.outcome(failure.reason)
        assert (record.tool, record.unavailable) == (None, version)
