"""How a call ends: its outcome is durable before its caller hears of it, whatever the outcome is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.runtime.retry import is_transient, retry_until
from services.executor.domain import errors
from services.executor.domain.audit_records import ending, outcome_record
from services.executor.domain.idempotency.unknown_outcome import Overtaken
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, Record, Settled
from services.executor.domain.ports import AuditTrail, Claims, Observer
from services.executor.domain.tool import UncertainOutcome

# The log itself failed.
_UNRECORDED = frozenset({Reason.AUDIT_UNAVAILABLE, Reason.AUDIT_BACKPRESSURE, Reason.AUDIT_RECORD_INVALID})
# After these nobody knows whether the tool had its effect.
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
        # Of a run: it was stopped because its key might soon be somebody else's, or could be for a moment.
        Reason.SERVICE_UNAVAILABLE,
    }
)
# How long whoever left is still held by effects that are just becoming real. Bounded, because the end of the process may wait for it.
STAY_SECONDS = 5.0
# How long a database that was away when a key was to be settled is told again: as long as it takes it to restart, or to be replaced.
SETTLE_SECONDS = 60.0
T = TypeVar("T")


class Closing:
    """Records endings and settles keys. A step once begun goes on, even if the caller leaves."""

    def __init__(
        self, audit: AuditTrail, claims: Claims, observer: Observer, clock: Clock, *, audit_wait: float
    ) -> None:
        self._audit, self._claims, self._observer, self._clock = audit, claims, observer, clock
        self._audit_wait = audit_wait
        self._ending: set[asyncio.Future[Any]] = set()

    def append(self, record: Record, *, until: float) -> Awaitable[None]:
        """Return once the record is in the log. Raises when it is not, in time."""
        return self._audit.append(record, within=self._patience(until))

    def conclude(self, record: Record, *, until: float) -> Awaitable[None]:
        """Return once the record of how a run ended is in the log, or waits for it where it cannot be lost."""
        return self._audit.conclude(record, within=self._patience(until))

    def _patience(self, until: float) -> float:
        return max(min(until - self._clock.monotonic(), self._audit_wait), 0.001)

    async def keep_and_conclude(self, invocation: Invocation, claim: Claim, outcome: Settled, record: Record) -> None:
        """Settle the key, then record: if the log fails now, a retry must find the result and not run the tool again."""
        try:
            await self._quietly(invocation, partial(self._claims.settle, claim, outcome))
        except Overtaken:
            # What ran is on record as what it was, also where somebody else answers for the key.
            await self.conclude(record, until=invocation.deadline.answer_by)
            raise
        await self.conclude(record, until=invocation.deadline.answer_by)

    async def failed(self, invocation: Invocation, error: MeshError, until: float) -> MeshError:
        """Record a failure once and return what the caller gets: the failure, or that it could not be recorded."""
        error.invocation_id = invocation.invocation_id
        invocation.phases.end(error)
        if invocation.closed:
            invocation.reason = error.reason
            return error
        invocation.enter(ending(invocation, error))
        invocation.reason, invocation.closed = error.reason, True
        record = outcome_record(invocation)
        await self._settle(invocation, error)
        if error.reason in _UNRECORDED:
            # The log did not confirm the decision. It hears of the end when it hears of anything again.
            self._audit.leave(record)
            return error
        try:
            # Only what ran is sure to have its decision in the log; nothing else may be promised without the log's word.
            await (self.conclude if invocation.attempts else self.append)(record, until=until)
        except MeshError as unrecorded:
            unrecorded.invocation_id, invocation.reason = invocation.invocation_id, unrecorded.reason
            return unrecorded
        error.evidence = (*invocation.evidence, f"records/{record.record_id}")
        return error

    async def interrupted(self, invocation: Invocation, error: MeshError) -> MeshError:
        """Record what was interrupted, by whomever. Nobody waits any more, so the log has its full time."""
        return await self.failed(invocation, error, until=self._clock.monotonic() + self._audit_wait)

    async def to_the_end(self, step: Awaitable[T]) -> T:
        """Take a step that goes on even if the caller leaves while it is taken."""
        return await asyncio.shield(self._begun(step))

    async def stay(self, step: Awaitable[None]) -> bool:
        """Take a step and stay until it is over, even if the caller leaves meanwhile: what comes next must not meet it half-way. Say
        whether the caller left, whose cancellation is then still due; it is raised here if the step takes too long after it."""
        task = self._begun(step)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await _outlast(task)
            task.result()
            return True
        task.result()
        return False

    async def _settle(self, invocation: Invocation, error: MeshError) -> None:
        """Give the key back where a retry is safe; otherwise keep what every further call with it must hear."""
        claim, tool = invocation.claim, invocation.tool
        if claim is None or tool is None:
            return
        kept: MeshError | None = None
        uncertain = invocation.attempts and (error.reason in _UNCERTAIN or not self._claims.sure(claim))
        if uncertain and tool.uncertain is UncertainOutcome.QUERY_STATUS:
            await self._quietly(invocation, partial(self._claims.abandon, claim))
            return
        if uncertain:
            kept = None if tool.repeatable else errors.outcome_unknown(invocation.invocation_id)
        elif invocation.attempts and not error.row.retryable:
            kept = error
        if kept is None:
            await self._quietly(invocation, partial(self._claims.release, claim))
        else:
            with suppress(Overtaken):
                settled = Settled(invocation.invocation_id, kept)
                await self._quietly(invocation, partial(self._claims.settle, claim, settled))

    async def _quietly(self, invocation: Invocation, step: Callable[[], Awaitable[None]]) -> None:
        """Take a step whose failure changes nothing for this caller. For everybody who comes after it is taken again, as long as the database
        may come back; after that the claim's lease speaks for itself."""
        claim = invocation.claim
        try:
            async with asyncio.timeout(self._audit_wait):
                await step()
        except Overtaken:
            raise
        except Exception as cause:
            self._observer.unforeseen(cause)
            # Not where the key was never held: a database that comes back is not asked once more by everybody whom it could not serve.
            held = invocation.attempts or (claim is not None and self._claims.sure(claim))
            if held and is_transient(cause):
                self._begun(self._say_again(step))

    async def _say_again(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await retry_until(step, attempt_timeout=self._audit_wait, time_budget=SETTLE_SECONDS)
        except Overtaken:
            # Whoever holds the key by now answers for it.
            return
        except Exception as cause:
            self._observer.unforeseen(cause)

    def _begun(self, step: Awaitable[T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(step)
        self._ending.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            # Seen by the caller if there still is one; otherwise nobody is left to tell.
            task.exception()


async def _outlast(task: asyncio.Future[Any]) -> None:
    """Wait for a step however often the wait is canceled, and not for ever."""
    loop = asyncio.get_running_loop()
    until = loop.time() + STAY_SECONDS
    while not task.done():
        if loop.time() >= until:
            raise asyncio.CancelledError
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=until - loop.time())
