"""Fakes at the ports: each keeps its port's promises, and breaks exactly the one that a test asks it to break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from libs.common.auth.constraints import ConstraintChecker
from libs.common.errors import MeshError, Reason
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.sealing import KEY_BYTES, Seal
from services.executor.adapters.audit.stream import PendingRecord
from services.executor.adapters.idempotency.claim_rows import Scope, scope_of
from services.executor.adapters.preview_tokens import SealedPreviewTokens
from services.executor.adapters.results.memory_cache import MemoryResultCache
from services.executor.domain import errors
from services.executor.domain.approvals.ticket import Redemption, Ticket, TicketDraft
from services.executor.domain.hooks.hooks import Hook, Hooks
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.unknown_outcome import ClaimLostError, PreparedResult, UnresolvedClaim
from services.executor.domain.invocation import Invocation, StartSpan
from services.executor.domain.invoke.invoke import Invoke
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
from services.executor.domain.phases.pipeline import Pipeline, Ports
from services.executor.domain.phases.supervise import InFlight
from services.executor.domain.ports import AuditTrail
from services.executor.domain.preview.preview_invocation import PreviewInvocation
from services.executor.domain.results.store import LargeResults
from services.executor.domain.run import CommitState, RunRequest, RunResult
from services.executor.domain.scheduling.scheduler import Scheduler
from services.executor.domain.scheduling.slots import SlotPool
from services.executor.domain.tool import Tool
from services.executor.domain.tool_logs.tool_log import ToolLog
from services.executor.tests.memory_results import MemoryResults
from services.executor.tests.samples import a_decision, a_tool


class KnownTools:
    """A view of a few tools."""

    def __init__(self, *tools: Tool) -> None:
        self.tools = {tool.qualified.partition(".")[2]: tool for tool in tools}
        self.failure: Exception | None = None

    def resolve(self, reference: str, constraint: str) -> Tool:
        if self.failure is not None:
            raise self.failure
        try:
            return self.tools[reference.rpartition(".")[2]]
        except KeyError:
            raise errors.tool_not_found(reference) from None


class SetPolicy:
    """Policy with one answer."""

    def __init__(self) -> None:
        self.answer: Decision | Exception = a_decision()
        self.asked: list[tuple[str, str]] = []
        self.replaced: set[str] = set()
        self.refused: list[Decision] = []
        self.waiting: asyncio.Event | None = None
        self.reached = asyncio.Event()

    async def decide(self, tool: Tool, caller: Caller, question: Question) -> Decision:
        self.asked.append((tool.name, question.arguments_digest))
        self.reached.set()
        if self.waiting is not None:
            await self.waiting.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if self.answer.made_for else replace(self.answer, made_for=question.invocation_id)

    async def refuse(self, tool: Tool, caller: Caller, question: Question, refusal: Decision) -> Decision:
        self.refused.append(refusal)
        return replace(refusal, name=f"decisions/refusal-{len(self.refused)}", made_for=question.invocation_id)

    def outdated(self, decision: Decision) -> bool:
        return decision.policy_set_version in self.replaced


class MemoryTrail:
    """A log that confirms at once, except for records that the test withholds."""

    def __init__(self) -> None:
        self.durable: list[Record] = []
        self.handed_over: list[Record] = []
        self.withholds: Callable[[Record], bool] = lambda record: False
        self.kept: list[Record] = []
        self.restored: list[EncodedRecord] = []
        self.keeps = False
        self.full = False
        self.steps: list[str] = []

    async def append(self, record: Record, *, within: float) -> None:
        self.handed_over.append(record)
        if self.withholds(record):
            # As long as a caller can be made to wait; the test's clock never has to.
            raise errors.not_recorded()
        await asyncio.sleep(0)
        self.durable.append(record)
        self.steps.append(f"durable {record.event}")

    async def conclude(self, record: Record, *, within: float) -> None:
        """Like `append`, with an outbox behind it that takes what the log withholds unless the test says otherwise."""
        try:
            await self.append(record, within=within)
        except MeshError:
            if not self.keeps:
                raise
            self.kept.append(record)
            self.steps.append(f"kept {record.event}")

    def admit(self) -> None:
        if self.full:
            raise errors.log_behind()

    async def restore(self, record: EncodedRecord, *, within: float) -> None:
        self.restored.append(record)

    def leave(self, record: Record) -> None:
        self.handed_over.append(record)


class ClosedOutbox:
    """An outbox whose database is away."""

    full = False

    async def start(self) -> None:
        """There is nothing to begin."""

    async def stop(self) -> None:
        """There is nothing to end."""

    async def store(self, record: Record, pending: PendingRecord | None) -> None:
        raise MeshError(Reason.SERVICE_UNAVAILABLE)

    async def store_encoded(self, records: Sequence[tuple[str, bytes]]) -> None:
        raise MeshError(Reason.SERVICE_UNAVAILABLE)


class ScriptedRunner:
    """Runs whatever function the test gives it."""

    def __init__(self, steps: list[str]) -> None:
        self.behave: Callable[[dict[str, Any]], Awaitable[Any]] = say
        self.calls: list[dict[str, Any]] = []
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.knows_tool = True
        self._steps = steps

    def sandbox_for(self, tool: Tool) -> str | None:
        return "in_process" if self.knows_tool else None

    def missing_for(self, tool: Tool) -> str:
        return "" if self.knows_tool else "it lacks a pack"

    def runs_inline(self, tool: Tool) -> bool:
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        work.begin()
        self.calls.append(work.arguments)
        self._steps.append("ran")
        self.started.set()
        try:
            return RunResult(await self.behave(work.arguments))
        finally:
            self.stopped.set()


async def say(arguments: dict[str, Any]) -> Any:
    """What a well-behaved tool does."""
    return {"said": arguments["text"]}


async def never_ends(arguments: dict[str, Any]) -> Any:
    """What a tool does that waits for something that never comes."""
    await asyncio.Event().wait()


class MemoryClaims:
    """Keys in memory, with the same rules as the table."""

    def __init__(self) -> None:
        self.held: dict[Scope, tuple[Claim, ClaimOutcome | None]] = {}
        self.doubted: dict[Scope, tuple[str, ...]] = {}
        self.prepared: dict[Scope, PreparedResult] = {}
        self.confirmed: list[str] = []
        self.lost_owners: set[str] = set()
        self.failure: Exception | None = None
        self._changed = asyncio.Condition()

    async def acquire(self, claim: Claim, on_wait: Callable[[], None] = lambda: None) -> ClaimOutcome | None:
        scope = scope_of(claim)
        async with self._changed:
            while scope in self.held:
                first, settled = self.held[scope]
                if first.arguments_digest != claim.arguments_digest:
                    raise key_errors.key_conflict()
                if settled is not None:
                    return settled
                if first.invocation_id in self.lost_owners:
                    if first.volumes_only and scope not in self.prepared:
                        break
                    self.doubted[scope] = (*self.doubted.get(scope, ()), first.invocation_id)
                    break
                on_wait()
                await self._changed.wait()
            self.held[scope] = (claim, None)
            runs = self.doubted.get(scope, ())
            if not runs or claim.repeatable:
                return None
            unknown = key_errors.outcome_unknown(runs[0], claim.name)
            return UnresolvedClaim(runs[0], unknown, runs=runs, prepared=self.prepared.get(scope))

    async def prepare(self, claim: Claim, result: Result, volume: str) -> None:
        if claim.invocation_id in self.lost_owners:
            raise ClaimLostError(claim.invocation_id)
        self.prepared[scope_of(claim)] = PreparedResult(claim.invocation_id, result, volume)

    async def confirm_record(self, claim: Claim, record_id: str) -> None:
        self.confirmed.append(record_id)

    def is_held(self, claim: Claim) -> bool:
        return claim.invocation_id not in self.lost_owners

    async def settle(self, claim: Claim, settled: ClaimOutcome) -> None:
        if not await self._replace(claim, (claim, settled)):
            raise ClaimLostError(claim.invocation_id)

    async def release(self, claim: Claim) -> None:
        runs = self.doubted.get(scope_of(claim), ())
        if runs:
            await self._replace(claim, (replace(claim, invocation_id=runs[-1]), None))
            self.doubted[scope_of(claim)] = runs[:-1]
        else:
            await self._replace(claim, None)

    async def abandon(self, claim: Claim) -> None:
        self.lost_owners.add(claim.invocation_id)
        await self._replace(claim, (claim, None))

    async def _replace(self, claim: Claim, kept: tuple[Claim, ClaimOutcome | None] | None) -> bool:
        if self.failure is not None:
            raise self.failure
        scope = scope_of(claim)
        async with self._changed:
            found = self.held.get(scope)
            if found is None or found[0].invocation_id != claim.invocation_id or found[1] is not None:
                return False
            del self.held[scope]
            if kept is not None:
                self.held[scope] = kept
            self._changed.notify_all()
            return True


class MemoryCommits:
    """Volumes that remember what was committed."""

    def __init__(self) -> None:
        self.states: dict[str, CommitState | Exception] = {}

    async def resolve_commit(self, volume: str, tenant: str, invocation_id: str) -> CommitState:
        state = self.states.setdefault(invocation_id, CommitState.NOT_APPLIED)
        if isinstance(state, Exception):
            raise state
        return state


class MemorySpending:
    """Counts every call that is limited, and refuses when the test says so."""

    def __init__(self) -> None:
        self.reserved: list[Reservation] = []
        self.settled: list[tuple[Reservation, float | None]] = []
        self.failure: Exception | None = None
        self.waiting: asyncio.Event | None = None
        self.seconds: float | None = None
        self.deaf: Exception | None = None
        """What settling fails with."""

    async def reserve(self, reservation: Reservation) -> float:
        self.reserved.append(reservation)
        if self.waiting is not None:
            await self.waiting.wait()
        if self.failure is not None:
            raise self.failure
        return reservation.seconds if self.seconds is None else self.seconds

    async def settle(self, reservation: Reservation, *, ran: float | None) -> None:
        if self.deaf is not None:
            raise self.deaf
        self.settled.append((reservation, ran))


@dataclass
class Seen:
    """What an observer saw."""

    ended: list[Invocation] = field(default_factory=list)
    causes: list[Exception] = field(default_factory=list)


class Watcher:
    """Notes what it receives."""

    def __init__(self) -> None:
        self.seen = Seen()

    def ended(self, invocation: Invocation, seconds: float) -> None:
        self.seen.ended.append(invocation)

    def unexpected(self, cause: Exception, scanner: Scanner | None = None) -> None:
        self.seen.causes.append(cause)


class Suspicion:
    """Remembers who was put into quarantine."""

    def __init__(self) -> None:
        self.imposed: list[tuple[str, str]] = []

    async def impose(self, tool: Tool, why: str, invocation_id: str, *, within: float) -> None:
        self.imposed.append((tool.name, invocation_id))


class MemoryLogs:
    """Keeps what tools printed."""

    def __init__(self) -> None:
        self.kept: list[ToolLog] = []

    def put(self, log: ToolLog) -> None:
        self.kept.append(log)


class MemoryApprovals:
    """Tickets in memory: approved where the test says so, and redeemed once."""

    def __init__(self) -> None:
        self.drafts: dict[str, TicketDraft] = {}
        self.approved: set[str] = set()
        self.redeemed: dict[str, str] = {}
        self.failure: MeshError | None = None

    async def create(self, draft: TicketDraft, *, within: float) -> Ticket:
        if self.failure is not None:
            raise self.failure
        name = f"tickets/{len(self.drafts) + 1}"
        self.drafts[name] = draft
        return self._ticket(name)

    async def redeem(self, use: Redemption, *, validate_only: bool, within: float) -> Ticket:
        if self.failure is not None:
            raise self.failure
        if use.ticket not in self.approved:
            raise MeshError(Reason.APPROVAL_REQUIRED, metadata={"ticket": use.ticket})
        if self.drafts[use.ticket].arguments_digest != use.arguments_digest:
            raise MeshError(Reason.TICKET_ARGUMENTS_CHANGED)
        if self.redeemed.get(use.ticket, use.redemption_id) != use.redemption_id:
            raise MeshError(Reason.TICKET_REDEEMED)
        if not validate_only:
            self.redeemed[use.ticket] = use.redemption_id
        return self._ticket(use.ticket)

    async def get(self, name: str, *, within: float) -> Ticket:
        return self._ticket(name)

    async def cancel(self, name: str, *, within: float) -> None:
        self.approved.discard(name)

    def approve_all(self) -> str:
        """Approve every ticket, and return the name of the last."""
        self.approved = set(self.drafts)
        return list(self.drafts)[-1]

    def _ticket(self, name: str) -> Ticket:
        state = "approved" if name in self.approved else "pending"
        preview = self.drafts[name].preview
        return Ticket(name, state, datetime(2030, 1, 1, tzinfo=UTC), bool(preview) and b"failed" not in preview)


class NoSpans:
    """A call that is not sampled."""

    def begin(self) -> StartSpan | None:
        return None


class World:
    """Everything that a call goes through, as fakes, and the use case on top of it."""

    def __init__(
        self,
        tool: Tool | None = None,
        *,
        clock: Clock | None = None,
        audit_wait: float = 2.0,
        audit: Callable[[InFlight], AuditTrail] | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.tools = KnownTools(tool or a_tool())
        self.policy = SetPolicy()
        self.trail = MemoryTrail()
        self.runner = ScriptedRunner(self.trail.steps)
        self.claims = MemoryClaims()
        self.commits = MemoryCommits()
        self.spending = MemorySpending()
        self.watcher = Watcher()
        self.in_flight = InFlight()
        self.quarantine = Suspicion()
        self.results = MemoryResults()
        self.logs = MemoryLogs()
        self.approvals = MemoryApprovals()
        self.ports = Ports(
            tools=self.tools,
            authorizer=self.policy,
            audit=self.trail if audit is None else audit(self.in_flight),
            runner=self.runner,
            claims=self.claims,
            commits=self.commits,
            spending=self.spending,
            previews=SealedPreviewTokens(Seal([b"k" * KEY_BYTES]), clock or SystemClock()),
            quarantine=self.quarantine,
            cache=MemoryResultCache(clock or SystemClock(), max_bytes=1 << 20),
            large_results=LargeResults(self.results, 3600.0, 64 << 20),
            slots=SlotPool(Scheduler(clock or SystemClock()), clock or SystemClock()),
            logs=self.logs,
            hooks=Hooks(hooks, clock or SystemClock()),
            observer=self.watcher,
            spans=NoSpans(),
            clock=clock or SystemClock(),
            scanners=TenantScanners(),
            satisfies=ConstraintChecker(),
            approvals=self.approvals,
        )
        self.pipeline = Pipeline(self.ports, in_flight=self.in_flight, audit_wait=audit_wait)
        self.invoke = Invoke(self.pipeline)
        self.pipeline.gate.preview = PreviewInvocation(self.pipeline, self.ports.previews).execute

    async def failure(self, request: Any) -> MeshError:
        """Make a call that must fail and return how it does."""
        try:
            result = await self.invoke.execute(request)
        except MeshError as error:
            return error
        raise AssertionError(f"the call succeeded: {result}")
