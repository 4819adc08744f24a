"""Runs the hooks of an invocation: enters its states, notes the answers on it, and raises their errors."""

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

# An error is sent in the trailers, twice, and those hold 8 KiB: the hooks may use this much of it.
MAX_ADDED, MAX_ADDED_LENGTH = 4, 300


class InvocationHooks:
    """The hooks as the phases of an invocation use them."""

    def __init__(self, hooks: Hooks, scanners: TenantScanners) -> None:
        self._hooks, self._scanners = hooks, scanners
        self.active = hooks.active
        """False if no hook is declared; then no method has to be called."""

    async def before(self, invocation: Invocation, tool: Tool) -> Verdicts:
        """Run the pre hooks, before policy is asked. Raises HOOK_BLOCKED when a hook stops the call.

        Changed arguments are set on the invocation, with every change. The caller must validate them again, and must
        enforce a required approval.
        """
        if not self._hooks.matching(tool, Phase.PRE):
            return NOTHING
        invocation.enter(State.PRE_HOOKS_RUNNING)
        with self._collect_notes(invocation, tool) as facts:
            verdicts = await self._hooks.before(facts, invocation.arguments, until=invocation.deadline.run_until)
        self._take(invocation, verdicts)
        if verdicts.arguments is not None:
            invocation.arguments = verdicts.arguments
            invocation.changes = (*invocation.changes, *verdicts.changes)
        return verdicts

    async def at_approval(self, invocation: Invocation, tool: Tool, decision: Decision) -> MeshError | None:
        """Run the approval hooks. Return the error that ends the call before approval is requested, or None.

        The error is APPROVAL_REJECTED, or HOOK_BLOCKED when a hook that must not fail failed.
        """
        if not self._hooks.matching(tool, Phase.APPROVAL):
            return None
        wanted = {
            "decision": decision.name,
            "reasons": list(decision.reasons),
            "approver_groups": list(decision.approver_groups),
            "quorum": decision.quorum,
        }
        with self._collect_notes(invocation, tool) as facts:
            until = invocation.deadline.run_until
            verdicts = await self._hooks.at_approval(facts, invocation.arguments, wanted, until=until)
        invocation.context = (*invocation.context, *verdicts.context)
        return verdicts.stop

    async def after(self, invocation: Invocation, tool: Tool, value: Any) -> None:
        """Run the post hooks on the result that the caller would see. Raises HOOK_BLOCKED when one withholds it."""
        if not self._hooks.matching(tool, Phase.POST):
            return
        invocation.enter(State.POST_HOOKS_RUNNING)
        with self._collect_notes(invocation, tool) as facts:
            until = invocation.deadline.run_until
            verdicts = await self._hooks.after(facts, invocation.arguments, value, until=until)
        self._take(invocation, verdicts)

    async def after_failure(self, invocation: Invocation, error: MeshError) -> None:
        """Run the failure hooks, before the failure is recorded. Raises nothing.

        Their context is added to the error as `context.0` and so on, as far as there is room.
        """
        tool = invocation.tool
        if tool is None or not self._hooks.matching(tool, Phase.FAILURE):
            return
        with self._collect_notes(invocation, tool) as facts:
            until = invocation.deadline.run_until
            verdicts = await self._hooks.after_failure(facts, invocation.arguments, error, until=until)
        for index, text in enumerate(verdicts.context[:MAX_ADDED]):
            error.metadata[f"context.{index}"] = text[:MAX_ADDED_LENGTH]

    @contextmanager
    def _collect_notes(self, invocation: Invocation, tool: Tool) -> Iterator[Facts]:
        """Yield the facts for the hooks, and add their notes to the invocation however they end."""
        request = invocation.request
        scanner = invocation.scanner_of(self._scanners)
        facts = Facts(invocation.invocation_id, tool, request.caller, scanner, request.trace_id, invocation.preview)
        try:
            yield facts
        finally:
            invocation.hooks = (*invocation.hooks, *facts.notes)

    def _take(self, invocation: Invocation, verdicts: Verdicts) -> None:
        invocation.context = (*invocation.context, *verdicts.context)
        if verdicts.stop is not None:
            raise verdicts.stop
