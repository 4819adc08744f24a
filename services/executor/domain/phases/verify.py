"""Verifies a run: its result satisfies the schema, its effects are declared. Only then are its effects committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.hooks.invocation_hooks import InvocationHooks
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.claim import IdempotencyClaims
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim
from services.executor.domain.payload_summary import scans_inline
from services.executor.domain.ports import Quarantine
from services.executor.domain.results.build_result import build_result
from services.executor.domain.results.check import CheckedResult, VerifiedResult, check_result
from services.executor.domain.results.effects import (
    find_undeclared,
    merge_effects,
    quarantine_reason,
    reported_elsewhere,
)
from services.executor.domain.results.size_limits import UNDO_BYTES
from services.executor.domain.results.store import LargeResults
from services.executor.domain.run import RunResult
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.scheduling.shielded import ShieldedSteps
from services.executor.domain.tool import Tool
from services.executor.domain.validation_cost import LIGHT_BYTES, is_small, size_of_value

# How long a caller waits until every executor knows of a quarantine. This executor stops using the tool at once.
_QUARANTINE_PATIENCE = 2.0


class ResultVerifier:
    """The verify phase. A run that it refuses is rolled back."""

    def __init__(
        self,
        *,
        hooks: InvocationHooks,
        large_results: LargeResults,
        quarantine: Quarantine,
        held: Callable[[Claim], bool],
        claims: IdempotencyClaims,
        steps: ShieldedSteps,
        scanners: TenantScanners,
        heavy_work: HeavyWork,
        clock: Clock,
    ) -> None:
        self._hooks, self._large_results, self._quarantine = hooks, large_results, quarantine
        self._is_held, self._claims, self._steps = held, claims, steps
        self._scanners, self._heavy_work, self._clock = scanners, heavy_work, clock

    async def verify(self, invocation: Invocation, tool: Tool, run: RunResult) -> VerifiedResult:
        """Return the verified result once the effects of the run are committed.

        Raises RESULT_INVALID, RESULT_TOO_LARGE, SANITIZATION_FAILED, HOOK_BLOCKED or SIDE_EFFECT_VIOLATION after a
        rollback; PARTIAL_FAILURE when only some effects could be committed. A caller that leaves during the commit is
        noted on the invocation: the outcome is recorded first.
        """
        invocation.phases.begin("verify")
        has_effects = run.rollback is not None or run.commit is not None
        invocation.effects = reported_elsewhere(run.effects) if run.effects else ()
        try:
            verified = await self._check_run(invocation, tool, run)
            if has_effects and invocation.claim is not None and not self._is_held(invocation.claim):
                # Another call may have committed the same effects meanwhile.
                raise key_errors.claim_lost()
        except BaseException:
            if run.rollback is not None:
                await self._steps.finish_before_cancel(run.rollback())
            raise
        if not has_effects:
            return verified
        await self._prepare(invocation, tool, run, verified)
        invocation.committing = True
        if run.commit is not None:
            await self._commit(invocation, run, run.commit)
        if run.forget is not None and not invocation.prepared:
            # No call asks for it.
            self._steps.start(run.forget())
        return verified

    async def _prepare(self, invocation: Invocation, tool: Tool, run: RunResult, verified: VerifiedResult) -> None:
        """Store the result under the key before the changes of volumes are committed: a retry finds it if they are."""
        if run.commit is None or invocation.claim is None or not tool.volumes_only:
            return
        try:
            result = build_result(invocation, tool, verified, self._clock)
            await self._claims.prepare(invocation, result, run.journal_volume)
        except BaseException:
            if run.rollback is not None:
                await self._steps.finish_before_cancel(run.rollback())
            raise
        invocation.forget_commit = run.forget

    async def _commit(self, invocation: Invocation, run: RunResult, commit: Callable[[], Awaitable[None]]) -> None:
        """Commit the effects. Those that were committed are the call's, also if others could not be."""
        invocation.foreseen = tuple(effect for effect in merge_effects(run.effects) if effect.observed)
        try:
            if await self._steps.finish_before_cancel(commit()):
                invocation.note_caller_left()
        finally:
            committed = None if run.committed is None else run.committed()
            if committed is not None:
                invocation.effects, invocation.foreseen = (*committed, *invocation.effects), ()

    async def verify_value(self, invocation: Invocation, tool: Tool, value: Any) -> VerifiedResult:
        """Return a value as the result of the call.

        Raises RESULT_INVALID, RESULT_TOO_LARGE, SANITIZATION_FAILED or HOOK_BLOCKED.
        """
        checked = await self._check(invocation, tool, value)
        if self._hooks.active:
            await self._hooks.after(invocation, tool, checked.value)
        if checked.large:
            return await self._store(invocation, tool, checked)
        return VerifiedResult(checked.content, checked.payload, checked.rendered)

    async def _check(self, invocation: Invocation, tool: Tool, value: Any) -> CheckedResult:
        """Check a result: at once if that is quick, else beside the event loop."""
        caller = invocation.request.caller
        scanner = invocation.scanner_of(self._scanners)
        check = partial(check_result, invocation, tool, value, scanner)
        if is_small(value) and self._is_quick(tool, value, scanner):
            return check()
        return await self._heavy_work.run(caller, check)

    def _is_quick(self, tool: Tool, value: Any, scanner: Scanner) -> bool:
        size = size_of_value(value)
        light = size.text_bytes <= LIGHT_BYTES
        return tool.output.cost.runs_inline(size) and (light or _scans_inline(value, tool, scanner))

    async def _check_run(self, invocation: Invocation, tool: Tool, run: RunResult) -> VerifiedResult:
        invocation.undo = run.undo
        if run.undo is not None and (size := len(dump(run.undo))) > UNDO_BYTES:
            # Truncated arguments would undo something else, so the run is refused instead.
            raise errors.result_too_large(size, UNDO_BYTES)
        if run.effects:
            await self._check_effects(invocation, tool, run)
        return await self.verify_value(invocation, tool, run.value)

    async def _store(self, invocation: Invocation, tool: Tool, checked: CheckedResult) -> VerifiedResult:
        refusal = self._large_results.refusal(tool, invocation.arguments, len(checked.content))
        if refusal is not None:
            raise refusal
        request = invocation.request
        keyed = bool(request.idempotency_key)
        digest = checked.payload.digest
        stored = await self._large_results.save(tool, request.caller, checked.content, digest, keyed=keyed)
        return VerifiedResult(b"", checked.payload, checked.rendered, stored)

    async def _check_effects(self, invocation: Invocation, tool: Tool, run: RunResult) -> None:
        """Compare the effects with those that the manifest declares. A tool that violates it is quarantined first."""
        undeclared = find_undeclared(tool, run.effects)
        if not undeclared:
            return
        invocation.violations = tuple(undeclared)
        reason = quarantine_reason(undeclared, invocation.invocation_id)
        await self._quarantine.impose(tool, reason, invocation.invocation_id, within=_QUARANTINE_PATIENCE)
        raise errors.undeclared_effects(tool.name, len(undeclared))


def _scans_inline(value: Any, tool: Tool, scanner: Scanner) -> bool:
    try:
        return scans_inline(dump(value), tool, scanner)
    except MeshError:
        # It has no JSON form, and is refused for that.
        return True
