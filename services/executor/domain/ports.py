"""The interfaces that adapters implement for the domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from libs.common.redaction.scanner import Scanner
from libs.common.secret_store.secret import Secret
from services.executor.domain.idempotency.stored_key import KeyFilter, StoredKey
from services.executor.domain.invocation import Invocation, StartSpan
from services.executor.domain.model import (
    Caller,
    Claim,
    ClaimOutcome,
    Decision,
    EncodedRecord,
    Question,
    Record,
    Reservation,
    Result,
)
from services.executor.domain.run import CommitState, RunRequest, RunResult
from services.executor.domain.tool import Tool
from services.executor.domain.tool_logs.tool_log import ToolLog


class ToolView(Protocol):
    """The tool catalog, held in memory."""

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Return the version that a reference resolves to.

        Raises TOOL_NOT_FOUND, TOOL_VERSION_NOT_FOUND, TOOL_DEPRECATED or TOOL_UNAVAILABLE; SERVICE_UNAVAILABLE when the
        catalog may be out of date.
        """
        ...


class Authorizer(Protocol):
    """The client of the authz service."""

    async def decide(self, tool: Tool, caller: Caller, question: Question) -> Decision:
        """Return the decision about a call. Raises when there is none; the call is then refused."""
        ...

    async def refuse(self, tool: Tool, caller: Caller, question: Question, refusal: Decision) -> Decision:
        """Return the refusal as a decision of its own, which authz records and explains.

        `refusal` has the name of the decision that it follows, or none. If authz does not answer, the refusal stands
        without a name. Raises nothing.
        """
        ...

    def outdated(self, decision: Decision) -> bool:
        """Return whether the policy set of a decision is known to be replaced."""
        ...


class AuditTrail(Protocol):
    """The audit log."""

    def append(self, record: Record, *, within: float) -> Awaitable[None]:
        """Return once the record is durable. Raises AUDIT_UNAVAILABLE or AUDIT_BACKPRESSURE after `within` seconds.

        The record stays queued then, and may still become durable later.
        """
        ...

    async def conclude(self, record: Record, *, within: float) -> None:
        """Return once the outcome of a run is durable: in the log, or else in the outbox.

        Raises AUDIT_UNAVAILABLE when it is in neither after `within` seconds.
        """
        ...

    def admit(self) -> None:
        """Return if the log has room for another call. Raises AUDIT_BACKPRESSURE when its queue is full."""
        ...

    async def restore(self, record: EncodedRecord, *, within: float) -> None:
        """Return once the log has a record of an earlier call, which may have it already. Raises like `append`."""
        ...

    def leave(self, record: Record) -> None:
        """Queue a record without waiting for it."""
        ...


class Runner(Protocol):
    """Runs tools."""

    def sandbox_for(self, tool: Tool) -> str | None:
        """Return the name of the sandbox that the tool runs in; None if this executor cannot run it."""
        ...

    def missing_for(self, tool: Tool) -> str:
        """Return what this executor lacks to run the tool, and how to provide it; empty if it can run it."""
        ...

    def runs_inline(self, tool: Tool) -> bool:
        """Return whether a run of the tool never blocks, so that it needs no timeout."""
        ...

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the tool. Raises only MeshError.

        Calls `work.begin()` when the sandbox is ready: the time before is not the tool's. When canceled, every process
        of the run is gone within 100 ms; only a worker that has not got a call yet may continue to start.
        """
        ...


class ClaimStore(Protocol):
    """The store of idempotency keys, shared by all executors."""

    async def acquire(self, claim: Claim, on_wait: Callable[[], None]) -> ClaimOutcome | None:
        """Return None when this call holds the claim now, or the outcome of the first call with the key.

        Calls `on_wait` and waits while the first call is under way. Returns UnresolvedClaim when this call took the
        claim over from an owner that disappeared. Raises IDEMPOTENCY_CONFLICT for other arguments. The claim is held
        until it is settled, released or abandoned, or the claim object is garbage-collected.
        """
        ...

    def is_held(self, claim: Claim) -> bool:
        """Return whether no other call can hold the claim at this moment, by the clock and the lease."""
        ...

    async def prepare(self, claim: Claim, result: Result, volume: str) -> None:
        """Store the result that the call has once its changes are committed; the volume notes whether they are.

        Raises ClaimLostError when another call holds the claim.
        """
        ...

    async def settle(self, claim: Claim, settled: ClaimOutcome) -> None:
        """Store the outcome for later calls with the key. Raises ClaimLostError when another call holds the claim."""
        ...

    async def confirm_record(self, claim: Claim, record_id: str) -> None:
        """Note that the log has the audit record that is stored with the outcome of the key."""
        ...

    async def release(self, claim: Claim) -> None:
        """Release the claim: the call had no effect and may be retried. An earlier unresolved claim stays so."""
        ...

    async def abandon(self, claim: Claim) -> None:
        """Release the claim with an unknown outcome: the next call with the key gets an UnresolvedClaim."""
        ...


class KeyStore(Protocol):
    """The idempotency keys, for operators."""

    async def page(self, wanted: KeyFilter, after: tuple[datetime, str] | None, limit: int) -> list[StoredKey]:
        """Return keys, the newest first, that come after a key: its creation and its name."""
        ...

    async def get(self, name: str, tenant: str | None) -> StoredKey | None:
        """Return a key; None if it expired or belongs to another tenant. A tenant of None sees all."""
        ...

    async def settle(self, key: StoredKey, result: Result | None, record: Record) -> bool:
        """Store the result, or free the key if there is none, together with the record or not at all.

        Returns False, and changes nothing, if the key changed meanwhile.
        """
        ...


class CommitLog(Protocol):
    """The volumes' notes of committed runs."""

    async def resolve_commit(self, volume: str, tenant: str, invocation_id: str) -> CommitState:
        """Return whether a run committed its changes. If it did not, it never will.

        Raises SERVICE_UNAVAILABLE while the volume cannot tell.
        """
        ...


class ToolLogSink(Protocol):
    """Takes what tools print."""

    def put(self, log: ToolLog) -> None:
        """Queue a log without waiting for it. It may be dropped where too many are queued."""
        ...


class SecretStore(Protocol):
    """The credentials of tools."""

    async def get(self, name: str, tenant: str) -> Secret:
        """Return a credential as it is now: the tenant's own, or else the one for all.

        Raises SECRET_STORE_UNAVAILABLE, CREDENTIAL_NOT_FOUND, CREDENTIAL_EXPIRED or CREDENTIAL_UNREADABLE.
        """
        ...

    async def reject(self, name: str, tenant: str) -> None:
        """Note that a service refused the credential, so that a later call gets a fresh one where there may be one.

        Raises like `get`.
        """
        ...


class Spending(Protocol):
    """The counters of budgets and rate limits, shared by all executors."""

    async def reserve(self, reservation: Reservation) -> float:
        """Count a call in all of its buckets, or in none, and return how many seconds it may run. Idempotent.

        Raises RATE_LIMITED or BUDGET_EXHAUSTED when a bucket is full, SERVICE_UNAVAILABLE when the store cannot count.
        A reservation without `use` takes no call from the total of a token, and is refused where none is left.
        """
        ...

    async def settle(self, reservation: Reservation, *, ran: float | None) -> None:
        """Count the actual run time: `ran` seconds, or None if nothing ran. The call is no longer running."""
        ...


class Quarantine(Protocol):
    """Takes tools out of use that violated their manifest."""

    async def impose(self, tool: Tool, why: str, invocation_id: str, *, within: float) -> None:
        """Quarantine a version: here at once, everywhere once the registry confirms. Idempotent.

        Waits for the registry for at most `within` seconds.
        """
        ...


class PreviewTokens(Protocol):
    """Issues and checks the proof that a call was previewed."""

    def issue(self, facts: str) -> tuple[str, datetime]:
        """Return a token for a call with this fingerprint, and its expiry."""
        ...

    def accepts(self, token: str, facts: str) -> bool:
        """Return whether a token was issued for a call with this fingerprint and has not expired."""
        ...


class Observer(Protocol):
    """Receives events for metrics and logs."""

    def ended(self, invocation: Invocation, seconds: float) -> None:
        """Observe an invocation that ended."""
        ...

    def unexpected(self, cause: Exception, scanner: Scanner | None = None) -> None:
        """Observe an unexpected exception."""
        ...


class Spans(Protocol):
    """Tracing."""

    def begin(self) -> StartSpan | None:
        """Return a function that starts the span of a phase; None when the call is not sampled."""
        ...
