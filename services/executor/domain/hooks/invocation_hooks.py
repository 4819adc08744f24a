"""Hooks in the life of an invocation: it enters the state, their word is noted on it, and whoever stops it ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from libs.common.errors import MeshError
from libs.common.redaction.tenant_scanners import TenantScanners
from services.executor.domain.hooks.hooks import NOTHING, Facts, Hooks, Phase, Verdicts
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Decision
from services.executor.domain.states import State
from services.executor.domain.tool import Tool

# An error travels in the trailers of its call, twice, and those hold 8 KiB: this much of it may be the hooks'.
MAX_ADDED, MAX_ADDED_LENGTH = 4, 300


class InvocationHooks:
    """Asks the hooks about invocations."""

    def __init__(self, hooks: Hooks, scanners: TenantScanners) -> None:
        self._hooks, self._scanners = hooks, scanners
        self.active = hooks.active
        """False where no hook is declared; then none of the rest has to be called."""

    async def before(self, invocation: Invocation, tool: Tool) -> Verdicts:
        """Ask before policy is asked. Raises HOOK_BLOCKED when a hook stops the call. Arguments that hooks changed are on the invocation, with
        every change, and must be held against the contract again; whether a person must decide is for the caller of this to see to."""
        if not self._hooks.matching(tool, Phase.PRE):
            return NOTHING
        invocation.enter(State.PRE_HOOKS_RUNNING)
        with self._noting(invocation, tool) as facts:
            verdicts = await self._hooks.before(facts, invocation.arguments, until=invocation.deadline.run_until)
        self._take(invocation, verdicts)
        if verdicts.arguments is not None:
            invocation.arguments = verdicts.arguments
            invocation.changes = (*invocation.changes, *verdicts.changes)
        return verdicts

    async def at_approval(self, invocation: Invocation, tool: Tool, decision: Decision) -> MeshError | None:
        """Ask those who speak for approvers about a call that needs one. Return what ends it before a person is asked: APPROVAL_REJECTED by
        one of them, or HOOK_BLOCKED where one failed that must not; None when a person must decide."""
        if not self._hooks.matching(tool, Phase.APPROVAL):
            return None
        wanted = {
            "decision": decision.name,
            "reasons": list(decision.reasons),
            "approver_groups": list(decision.approver_groups),
            "quorum": decision.quorum,
        }
        with self._noting(invocation, tool) as facts:
            until = invocation.deadline.run_until
            verdicts = await self._hooks.at_approval(facts, invocation.arguments, wanted, until=until)
        invocation.context = (*invocation.context, *verdicts.context)
        return verdicts.stop

    async def after(self, invocation: Invocation, tool: Tool, value: Any) -> None:
        """Ask about a result as its caller would see it. Raises HOOK_BLOCKED when a hook withholds it."""
        if not self._hooks.matching(tool, Phase.POST):
            return
        invocation.enter(State.POST_HOOKS_RUNNING)
        with self._noting(invocation, tool) as facts:
            until = invocation.deadline.run_until
            verdicts = await self._hooks.after(facts, invocation.arguments, value, until=until)
        self._take(invocation, verdicts)

    async def after_failure(self, invocation: Invocation, error: MeshError) -> None:
        """Tell of a failure, before it is recorded and as long as it can still be answered in time. What hooks add travels in the error,
        as `context.0` and so on, as far as there is room. Raises nothing of its own."""
        tool = invocation.tool
        if tool is None or not self._hooks.matching(tool, Phase.FAILURE):
            return
        with self._noting(invocation, tool) as facts:
            until = invocation.deadline.run_until
            verdicts = await self._hooks.after_failure(facts, invocation.arguments, error, until=until)
        for place, text in enumerate(verdicts.context[:MAX_ADDED]):
            error.metadata[f"context.{place}"] = text[:MAX_ADDED_LENGTH]

    @contextmanager
    def _noting(self, invocation: Invocation, tool: Tool) -> Iterator[Facts]:
        """What hooks are told, and their notes on the invocation however asking them ends."""
        request = invocation.request
        scanner = self._scanners.of(request.caller.tenant)
        facts = Facts(invocation.invocation_id, tool, request.caller, scanner, request.trace_id, invocation.preview)
        try:
            yield facts
        finally:
            invocation.hooks = (*invocation.hooks, *facts.notes)

    def _take(self, invocation: Invocation, verdicts: Verdicts) -> None:
        invocation.context = (*invocation.context, *verdicts.context)
        if verdicts.stop is not None:
            raise verdicts.stop
