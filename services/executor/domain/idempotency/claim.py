"""Claims idempotency keys: the first call with a key runs, later calls get its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from libs.common.runtime.clock import Clock
from libs.common.runtime.retry import is_transient, retry_until
from services.executor.domain import errors
from services.executor.domain.idempotency.unknown_outcome import ClaimLostError, UnresolvedClaim
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, ClaimOutcome
from services.executor.domain.phases.shielded import ShieldedSteps
from services.executor.domain.ports import ClaimStore, Observer
from services.executor.domain.scheduling.time_limit import limit_wait
from services.executor.domain.tool import Tool, UncertainOutcome

# After a run that failed for one of these reasons, it is unknown whether the tool had its effect.
_UNCERTAIN = frozenset(
    {
        Reason.TOOL_TIMEOUT,
        Reason.DEADLINE_EXCEEDED,
        Reason.TOKEN_EXPIRED,
        Reason.TOKEN_REVOKED,
        Reason.INVOCATION_CANCELED,
        Reason.SIBLING_CANCELED,
        Reason.TOOL_CRASHED,
        Reason.TOOL_OUT_OF_MEMORY,
        Reason.RESOURCE_LIMIT_EXCEEDED,
        Reason.NETWORK_POLICY_VIOLATION,
        Reason.STREAM_DISCARDED,
        Reason.PARTIAL_FAILURE,
        Reason.EXTERNAL_TIMEOUT,
        Reason.BUDGET_EXHAUSTED,
        Reason.INTERNAL,
        # The run was stopped because its claim was lost, or was about to be.
        Reason.SERVICE_UNAVAILABLE,
    }
)
# How long a claim update is retried after the store failed: as long as a database takes to restart or fail over.
SETTLE_SECONDS = 60.0

Resolve = Callable[[Claim, UnresolvedClaim], Awaitable[ClaimOutcome | None]]


class IdempotencyClaims:
    """Acquires the claim of a call, and settles or releases it when the call ends."""

    def __init__(
        self, store: ClaimStore, steps: ShieldedSteps, observer: Observer, clock: Clock, *, store_timeout: float
    ) -> None:
        self._store, self._steps, self._observer, self._clock = store, steps, observer, clock
        self._store_timeout = store_timeout

    async def acquire(self, invocation: Invocation, tool: Tool, resolve: Resolve) -> ClaimOutcome | None:
        """Claim the key of the call and return None, or return the outcome of the first call with it.

        `resolve` decides where the first call's outcome is unknown. Raises DEADLINE_EXCEEDED or TOKEN_EXPIRED when the
        wait for another call with the key takes all the time there is.
        """
        request, caller = invocation.request, invocation.request.caller
        claim = Claim(
            tenant=caller.tenant,
            tool=tool.qualified,
            subject=caller.subject,
            # Never the token: a renewed token must find the first result.
            session=caller.session_id,
            key=request.idempotency_key,
            # As the caller sent them: a default that changes between versions must not turn a retry into a conflict.
            arguments_digest=digest(parse_object(request.arguments)),
            invocation_id=invocation.invocation_id,
            window=tool.window,
            repeatable=tool.repeatable,
        )
        async with limit_wait(invocation, self._clock):
            # Set before the store answers: if the answer is lost to a cancellation, the claim is still released.
            invocation.claim = claim
            outcome = await self._store.acquire(claim)
        if isinstance(outcome, UnresolvedClaim):
            outcome = await resolve(claim, outcome)
        if outcome is not None:
            invocation.claim = None
        return outcome

    async def settle(self, invocation: Invocation, claim: Claim, outcome: ClaimOutcome) -> None:
        """Store the outcome under the key. Raises ClaimLostError when another call holds the claim by now.

        A store failure does not affect the caller: the update is retried in the background.
        """
        await self._update(invocation, partial(self._store.settle, claim, outcome))

    async def settle_failure(self, invocation: Invocation, error: MeshError) -> None:
        """Release the claim where a retry is safe; otherwise store the error that later calls with the key get."""
        claim, tool = invocation.claim, invocation.tool
        if claim is None or tool is None:
            return
        stored: MeshError | None = None
        uncertain = invocation.attempts and (error.reason in _UNCERTAIN or not self._store.is_held(claim))
        if uncertain and tool.uncertain is UncertainOutcome.QUERY_STATUS:
            await self._update(invocation, partial(self._store.abandon, claim))
            return
        if uncertain:
            stored = None if tool.repeatable else errors.outcome_unknown(invocation.invocation_id)
        elif invocation.attempts and not error.row.retryable:
            stored = error
        if stored is None:
            await self._update(invocation, partial(self._store.release, claim))
        else:
            with suppress(ClaimLostError):
                await self.settle(invocation, claim, ClaimOutcome(invocation.invocation_id, stored))

    async def _update(self, invocation: Invocation, step: Callable[[], Awaitable[None]]) -> None:
        """Update the claim. On failure the update is retried for SETTLE_SECONDS; after that the lease expires."""
        claim = invocation.claim
        try:
            async with asyncio.timeout(self._store_timeout):
                await step()
        except ClaimLostError:
            raise
        except Exception as cause:
            self._observer.unexpected(cause)
            # Not where the claim was never held: a store that comes back must not get a retry of every failed call.
            held = invocation.attempts or (claim is not None and self._store.is_held(claim))
            if held and is_transient(cause):
                self._steps.start(self._retry(step))

    async def _retry(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await retry_until(step, attempt_timeout=self._store_timeout, time_budget=SETTLE_SECONDS)
        except ClaimLostError:
            # The call that holds the claim by now stores its own outcome.
            return
        except Exception as cause:
            self._observer.unexpected(cause)
