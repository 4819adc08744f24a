"""What the domain needs of the world."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol

from services.executor.domain.invocation import Invocation, StartSpan
from services.executor.domain.model import (
    Caller,
    Claim,
    ClaimOutcome,
    Decision,
    Question,
    Record,
    Reservation,
    RunRequest,
    RunResult,
)
from services.executor.domain.tool import Tool


class ToolView(Protocol):
    """The tools there are, as close at hand as a dictionary."""

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Return the version that a reference means. Raises TOOL_NOT_FOUND, TOOL_VERSION_NOT_FOUND, TOOL_DEPRECATED or
        TOOL_UNAVAILABLE; SERVICE_UNAVAILABLE when the view may be out of date."""
        ...


class Authorizer(Protocol):
    """Policy."""

    async def decide(self, tool: Tool, caller: Caller, question: Question) -> Decision:
        """Return what policy answers. Raises when no decision could be made; the call is then refused."""
        ...

    def outdated(self, decision: Decision) -> bool:
        """Say whether the policies that made a decision are known to have been replaced."""
        ...


class AuditTrail(Protocol):
    """The log of evidence."""

    def append(self, record: Record, *, within: float) -> Awaitable[None]:
        """Return once the record is durable. Raises AUDIT_UNAVAILABLE or AUDIT_BACKPRESSURE when that did not happen within
        so many seconds; the record stays handed over and may still become durable later."""
        ...

    async def conclude(self, record: Record, *, within: float) -> None:
        """Return once the record of how a run ended is durable: in the log, or failing that where it waits for the log. Raises
        AUDIT_UNAVAILABLE when it is in neither within so many seconds."""
        ...

    def admit(self) -> None:
        """Return if another run could be recorded. Raises AUDIT_BACKPRESSURE when too much waits for the log already."""
        ...

    def leave(self, record: Record) -> None:
        """Hand a record over without waiting for it."""
        ...


class Runner(Protocol):
    """The place where tools run."""

    def sandbox_for(self, tool: Tool) -> str | None:
        """Name the sandbox that the tool would run in; None if this executor cannot run it."""
        ...

    def runs_inline(self, tool: Tool) -> bool:
        """Say whether a run of the tool takes but a moment and waits for nothing, so that nobody has to watch its time."""
        ...

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        """Run the tool and return what it brought back. When canceled, everything it started is gone within 100 ms. Raises
        MeshError and nothing else."""
        ...


class ClaimStore(Protocol):
    """The memory of idempotency keys, shared by all executors."""

    async def acquire(self, claim: Claim) -> ClaimOutcome | None:
        """Return None when the claim is now held by this call, or what the first call with the key ended in, waiting for
        it if it is under way, for as long as whoever asks lets it. Returns Doubted when this call now holds the key, and its earlier owner
        fell silent without saying whether the effect happened. Raises IDEMPOTENCY_CONFLICT for other arguments.

        What is held stays held until it is settled, released or abandoned, or nobody knows the claim any more."""
        ...

    def is_held(self, claim: Claim) -> bool:
        """Say whether nobody else can hold the key at this moment; asks nobody but the clock."""
        ...

    async def settle(self, claim: Claim, settled: ClaimOutcome) -> None:
        """Keep how the call ended, for everyone who asks with the same key. Raises Overtaken, and keeps nothing, when somebody else
        holds the key now."""
        ...

    async def release(self, claim: Claim) -> None:
        """Give the key back: the call had no effect and may be tried again. An earlier owner's doubt stays."""
        ...

    async def abandon(self, claim: Claim) -> None:
        """Let go of the key without knowing whether the effect happened: the next call with it holds a Doubted."""
        ...


class Spending(Protocol):
    """The count of what calls spend, shared by all executors."""

    async def reserve(self, reservation: Reservation) -> float:
        """Count a call in all of its buckets, or in none, and return how many seconds it may run. Raises RATE_LIMITED or
        BUDGET_EXHAUSTED when a bucket is full, SERVICE_UNAVAILABLE when nothing can be counted. Repeating it counts once. What is no
        use takes no call of a bucket that lasts as long as its token, and is refused where none is left."""
        ...

    async def settle(self, reservation: Reservation, *, ran: float | None) -> None:
        """Count what the call really took: `ran` seconds, or nothing at all (None). It is no longer under way."""
        ...


class Quarantine(Protocol):
    """Where tools go that broke their word."""

    async def impose(self, tool: Tool, why: str, invocation_id: str, *, within: float) -> None:
        """Take a version out of use: here at once, everywhere as soon as the registry has taken it in, for which this waits so many
        seconds at most. Imposing it twice imposes it once."""
        ...


class PreviewTokens(Protocol):
    """Proof that a call was previewed."""

    def issue(self, facts: str) -> tuple[str, datetime]:
        """Return a token for a call with these facts, and until when it is good."""
        ...

    def accepts(self, token: str, facts: str) -> bool:
        """Say whether a token was issued for a call with these facts and is still good."""
        ...


class Observer(Protocol):
    """Whoever counts."""

    def ended(self, invocation: Invocation, seconds: float) -> None:
        """See an invocation that is over."""
        ...

    def unexpected(self, cause: Exception) -> None:
        """See an exception that nobody foresaw."""
        ...


class Spans(Protocol):
    """Tracing."""

    def begin(self) -> StartSpan | None:
        """Return what starts a span for a phase of the present call; None when the call is not sampled."""
        ...
