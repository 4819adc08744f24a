"""Keyed calls of tools that change nothing but volumes: the mesh always knows what happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain import run_errors
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.run import CommitState, RunRequest, RunResult
from services.executor.domain.tool import Tool
from services.executor.tests.fakes import World, never_ends
from services.executor.tests.samples import a_request, a_write_tool


class Volumes(World):
    """A world whose tool changes a volume when its run is committed."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(a_write_tool(volumes_only=True, **changes))
        self.applied: list[str] = []
        self.forgotten: list[str] = []
        self.runs = 0
        self.runner.run = self.run  # type: ignore[method-assign]
        self.before_commit: Any = None

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        work.begin()
        self.runs += 1
        self.runner.started.set()
        value = await self.runner.behave(work.arguments)

        async def commit() -> None:
            if self.before_commit is not None:
                await self.before_commit()
            self.applied.append(work.invocation_id)
            self.commits.states[work.invocation_id] = CommitState.APPLIED

        async def rollback() -> None:
            """There is nothing to remove."""

        async def forget() -> None:
            self.forgotten.append(work.invocation_id)

        return RunResult(value, commit=commit, rollback=rollback, forget=forget, journal_volume="files")

    async def dies(self, *, after_commit: bool = False, during_commit: bool = False) -> str:
        """Leave a key as a process does that was killed: in its run, or around its commit."""
        stuck = asyncio.Event()

        async def lost(*anything: Any) -> None:
            stuck.set()
            await asyncio.Event().wait()

        settle, release, abandon = self.claims.settle, self.claims.release, self.claims.abandon
        if after_commit:
            self.claims.settle = lost  # type: ignore[assignment, method-assign]
        elif during_commit:
            self.before_commit = lost
        else:
            self.runner.behave = lost
        call = asyncio.ensure_future(self.invoke.execute(a_request(idempotency_key="k", deadline=None)))
        await stuck.wait()
        [(claim, _)] = self.claims.held.values()
        self.claims.lost_owners.add(claim.invocation_id)
        self.claims.settle = self.claims.release = self.claims.abandon = _nothing  # type: ignore[assignment, method-assign]
        call.cancel()
        self.claims.settle, self.claims.release = settle, release  # type: ignore[method-assign]
        self.claims.abandon, self.before_commit = abandon, None  # type: ignore[method-assign]
        self.runner.behave = World().runner.behave
        return claim.invocation_id


async def _nothing(*anything: Any) -> None:
    """A dead process says nothing."""


async def test_a_killed_run_changed_nothing_and_the_key_runs_again() -> None:
    world = Volumes()
    await world.dies()
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (result.replayed, world.runs, len(world.applied)) == (False, 2, 1)


async def test_a_run_killed_after_its_commit_is_replayed_with_evidence_that_is_in_the_log() -> None:
    world = Volumes()
    first = await world.dies(after_commit=True)
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (result.replayed, result.invocation_id, world.applied) == (True, first, [first])
    assert result.content == b'{"said":"hello"}'
    assert set(result.evidence) <= {f"records/{record.record_id}" for record in world.trail.durable}
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).result_id == result.result_id


async def test_a_run_killed_before_its_changes_were_applied_runs_again() -> None:
    world = Volumes()
    first = await world.dies(during_commit=True)
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (result.replayed, world.applied) == (False, [result.invocation_id])
    assert world.commits.states[first] is CommitState.NOT_APPLIED


async def test_a_volume_that_cannot_tell_now_leaves_the_question_to_the_next() -> None:
    world = Volumes()
    first = await world.dies(after_commit=True)
    world.commits.states[first] = key_errors.volume_busy("files")
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.retryable) == (Reason.SERVICE_UNAVAILABLE, True)
    world.commits.states[first] = CommitState.APPLIED
    assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


async def test_a_partly_applied_commit_is_an_unknown_outcome_that_names_its_key() -> None:
    world = Volumes()
    first = await world.dies(after_commit=True)
    world.commits.states[first] = CommitState.UNKNOWN
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.retryable) == (Reason.UNKNOWN_OUTCOME, False)
    assert error.metadata["key"].startswith("keys/")


async def test_a_run_that_ends_before_its_commit_says_so_and_frees_the_key() -> None:
    world = Volumes(own_limit=0.02)
    world.runner.behave = never_ends
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.metadata["effect"], error.retryable) == (Reason.TOOL_TIMEOUT, "none", True)
    assert world.claims.held == {}


async def test_changes_that_conflict_say_that_nothing_was_applied_and_free_the_key() -> None:
    world = Volumes()

    async def conflict() -> None:
        raise run_errors.partly_kept(0, 1, "changed")

    world.before_commit = conflict
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.metadata["effect"]) == (Reason.PARTIAL_FAILURE, "none")
    assert world.claims.held == {}


async def test_nothing_is_committed_unless_the_key_is_still_held() -> None:
    world = Volumes()

    async def overtaken(*anything: Any) -> Any:
        [(claim, _)] = world.claims.held.values()
        world.claims.lost_owners.add(claim.invocation_id)
        return {"said": "late"}

    world.runner.behave = overtaken
    world.claims.is_held = lambda claim: True  # type: ignore[method-assign]
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, world.applied) == (Reason.SERVICE_UNAVAILABLE, [])


async def test_a_store_that_cannot_prepare_the_result_stops_the_commit() -> None:
    world = Volumes()

    async def away(*anything: Any) -> None:
        raise MeshError(Reason.SERVICE_UNAVAILABLE)

    world.claims.prepare = away  # type: ignore[assignment, method-assign]
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.metadata["effect"], world.applied) == (Reason.SERVICE_UNAVAILABLE, "none", [])


@pytest.mark.parametrize("key", ["k", ""])
async def test_the_note_of_a_commit_is_removed_once_no_call_asks_for_it(key: str) -> None:
    world = Volumes(key_required=False)
    result = await world.invoke.execute(a_request(idempotency_key=key))
    await asyncio.gather(*world.pipeline.steps._tasks)
    assert world.forgotten == [result.invocation_id] == world.applied
