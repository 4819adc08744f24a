"""Resolves claims whose owner disappeared, so that it is unknown whether the effect happened.

The tool's declared rule decides: repeat the call, query a status tool, or fail. The mesh never guesses. A late owner is
one that was taken for dead, was only suspended, and continues. The guarantees in that case:

- FAIL: at most one effect, always. Nothing is repeated; the outcome of a late owner is recorded and not returned.
- REPEAT: the effect may happen again, which the tool declares harmless. Every caller gets the result of the call that
  holds the claim.
- QUERY_STATUS: one effect, if the late owner's run ended before the status query. Runs are stopped before their lease
  ends, and none begins without one; only a machine that freezes in the middle of a run can be too late. To exclude
  even that, a tool passes the idempotency key of its run on to the system that makes the change.

A job of a tool with checkpoints goes on from the newest usable one, whatever the rule.

A run that changes nothing but volumes leaves no doubt, whatever the rule: before its commit nothing is changed, and the
volume notes the commit (`CommitLog`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.json.jsonio import dump, parse
from libs.common.runtime.clock import Clock
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, ClaimOutcome, Request, Result, Source
from services.executor.domain.ports import ClaimStore, CommitLog, ToolView
from services.executor.domain.results.check import VerifiedResult
from services.executor.domain.results.size_limits import truncate_paths, truncate_texts
from services.executor.domain.results.store import UNAVAILABLE
from services.executor.domain.results.warnings import warnings_of
from services.executor.domain.run import CommitState
from services.executor.domain.tool import Mutation, Tool, UncertainOutcome

# A call whose owners died this often probably kills them, so it is not repeated any more.
MOST_RUNS = 8
_FOREVER = float("inf")


Verify = Callable[[Any], Awaitable[VerifiedResult]]


class ClaimLostError(Exception):
    """Another call holds the claim by now, or has settled it."""


@dataclass(frozen=True, slots=True)
class PreparedResult:
    """The result of a run that was about to commit its changes, and the volume that notes whether it did."""

    invocation_id: str
    result: Result
    volume: str


@dataclass(frozen=True, slots=True)
class UnresolvedClaim(ClaimOutcome):
    """A claim that this call took over from an owner that disappeared. Its outcome is unknown until it is resolved."""

    runs: tuple[str, ...] = ()
    """Every invocation that may have had the effect, in order."""
    exhausted: bool = False
    """True if so many owners died that the call is not repeated."""
    prepared: PreparedResult | None = None
    """The result of a run that was about to commit its changes."""


def late_owner_error(tool: Tool, claim: Claim) -> MeshError:
    """Return the error of a late owner's caller: UNKNOWN_OUTCOME, or a retryable error that finds the new outcome."""
    if tool.uncertain is UncertainOutcome.FAIL and not tool.volumes_only:
        return key_errors.outcome_unknown(claim.invocation_id, claim.name)
    return key_errors.claim_lost()


class UnknownOutcomes:
    """Resolves claims by the tool's rule, and settles them, so that every later call gets the same outcome."""

    def __init__(
        self,
        tools: ToolView,
        invoke: Callable[[Request], Awaitable[Result]],
        claims: ClaimStore,
        commits: CommitLog,
        clock: Clock,
    ) -> None:
        self._tools, self._invoke, self._claims, self._commits, self._clock = tools, invoke, claims, commits, clock

    async def resolve(
        self, invocation: Invocation, tool: Tool, claim: Claim, unresolved: UnresolvedClaim, verify: Verify
    ) -> ClaimOutcome | None:
        """Return the outcome of the earlier call, or None if it had no effect and this call has to run.

        `verify` verifies a value as the tool's result. Raises SERVICE_UNAVAILABLE when the status tool cannot answer
        now, or another retryable error: the claim stays unresolved and must be released.
        """
        settled = await self._outcome(invocation, tool, unresolved, verify)
        if settled is None:
            return None
        try:
            await self._claims.settle(claim, settled)
        except ClaimLostError:
            raise key_errors.claim_lost() from None
        return settled

    async def _outcome(
        self, invocation: Invocation, tool: Tool, unresolved: UnresolvedClaim, verify: Verify
    ) -> ClaimOutcome | None:
        prepared, runs = unresolved.prepared, unresolved.runs
        if prepared is not None and prepared.invocation_id in runs:
            tenant = invocation.request.caller.tenant
            state = await self._commits.resolve_commit(prepared.volume, tenant, prepared.invocation_id)
            if state is CommitState.APPLIED:
                return ClaimOutcome(prepared.invocation_id, prepared.result)
            if state is CommitState.NOT_APPLIED and runs == (prepared.invocation_id,):
                return None
        # A tool with checkpoints declares that it goes on behind them, whatever happened after them.
        if invocation.restore is not None and (await invocation.restore(tool)).state is not None:
            return None
        if unresolved.exhausted or tool.uncertain is not UncertainOutcome.QUERY_STATUS:
            return ClaimOutcome(unresolved.invocation_id, unresolved.outcome)
        return await self._query(invocation, tool, unresolved, verify)

    async def _query(
        self, invocation: Invocation, tool: Tool, unresolved: UnresolvedClaim, verify: Verify
    ) -> ClaimOutcome | None:
        try:
            status = await self._call_status_tool(invocation, tool, unresolved)
        except MeshError as error:
            if error.row.retryable:
                raise key_errors.status_unavailable(tool.status_tool) from error
            return ClaimOutcome(unresolved.invocation_id, unresolved.outcome)
        match parse(status.content) if status.content else None:
            case {"happened": False}:
                return None
            case {"happened": True, **rest}:
                return await self._outcome_of_effect(invocation, tool, unresolved, status, rest.get("result"), verify)
        return ClaimOutcome(unresolved.invocation_id, unresolved.outcome)

    async def _call_status_tool(self, invocation: Invocation, tool: Tool, unresolved: UnresolvedClaim) -> Result:
        """Call the status tool as the caller: authorized and recorded like any other call."""
        status = self._tools.resolve(tool.status_tool, "")
        if status.mutation is not Mutation.READ_ONLY:
            # A status query must not change anything.
            raise key_errors.status_tool_writes(status.name)
        until = invocation.deadline.run_until
        request = replace(
            invocation.request,
            tool=tool.status_tool,
            version=status.version,
            tool_digest=status.digest,
            # Ids only: the original arguments may hold secrets that only the tool's own manifest declares.
            arguments=dump({"idempotency_key": invocation.request.idempotency_key, "invocation_ids": unresolved.runs}),
            idempotency_key="",
            native_call_id="",
            preview_token="",
            ticket="",
            deadline=None if until == _FOREVER else until,
        )
        return await self._invoke(request)

    async def _outcome_of_effect(
        self,
        invocation: Invocation,
        tool: Tool,
        unresolved: UnresolvedClaim,
        status: Result,
        value: Any,
        verify: Verify,
    ) -> ClaimOutcome:
        first = unresolved.invocation_id
        try:
            verified = await verify(value)
        except MeshError as error:
            if error.row.retryable or error.metadata.get("not_stored") == UNAVAILABLE:
                # The query can be repeated, so the claim stays unresolved.
                raise key_errors.status_unavailable(tool.status_tool) from error
            # The effect happened and its result is invalid: the same outcome as of a run.
            return ClaimOutcome(first, error)
        result = Result(
            result_id=new_id(),
            invocation_id=first,
            content=verified.content,
            tool_version=tool.name,
            tool_digest=tool.digest,
            source=Source.REPLAY,
            created=self._clock.now(),
            total=0.0,
            phases=(),
            attempts=len(unresolved.runs),
            sandbox="",
            trace_id=status.trace_id,
            changed=truncate_paths(invocation.changed),
            context=truncate_texts(invocation.context),
            deprecation=tool.deprecation,
            warnings=warnings_of(tool),
            evidence=status.evidence,
            replayed=True,
            stored=verified.stored,
            rendered=verified.rendered,
        )
        return ClaimOutcome(first, result)
