"""One call, from asking to answer: request, validate, authorize, execute, verify, return.

Read it top to bottom. Nothing runs before its decision is durable, and nothing is answered before its outcome is. A decision
must be in the log; the outcome of what then ran may also wait for the log where it cannot be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from libs.common.auth.authority import Satisfies
from libs.common.canonical import digest
from libs.common.clock import Clock
from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.jsonio import parse, parse_object
from libs.common.redaction.book import ScannerBook
from libs.common.redaction.scanner import Scanner
from services.executor.domain import errors
from services.executor.domain.arguments import describe, prepare
from services.executor.domain.deadlines import limit_for
from services.executor.domain.evidence import decision_record, ending, outcome_record
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import (
    Caller,
    Claim,
    Payload,
    Question,
    Record,
    Request,
    Result,
    Settled,
    Source,
    Tool,
)
from services.executor.domain.ports import AuditTrail, Authorizer, Claims, Observer, Runner, Spans, Spending, ToolView
from services.executor.domain.refusal import refusal_of
from services.executor.domain.running import Running
from services.executor.domain.spending import Accounts
from services.executor.domain.states import State
from services.executor.domain.verify import for_this_caller, verified

# Beyond the end of the run: how long the owner of a claim may take to say how it ended.
LEASE_MARGIN = 5.0
_LONGEST_WAIT = 86_400.0
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
        Reason.TOOL_CRASHED,
        Reason.TOOL_OUT_OF_MEMORY,
        Reason.EXTERNAL_TIMEOUT,
        Reason.BUDGET_EXHAUSTED,
        Reason.INTERNAL,
    }
)
T = TypeVar("T")


@dataclass(slots=True)
class InFlight:
    """How many invocations are under way in this process."""

    count: int = 0


@dataclass(frozen=True, slots=True)
class Ports:
    """What one call goes through."""

    tools: ToolView
    authorizer: Authorizer
    audit: AuditTrail
    runner: Runner
    claims: Claims
    spending: Spending
    observer: Observer
    spans: Spans
    clock: Clock
    scanners: ScannerBook
    satisfies: Satisfies


class Invoke:
    """Runs calls. Every one leaves its evidence: refusals, failures, timeouts and cancellations too."""

    def __init__(self, ports: Ports, *, in_flight: InFlight, audit_wait: float) -> None:
        self._tools, self._authorizer, self._audit = ports.tools, ports.authorizer, ports.audit
        self._runner, self._claims, self._observer = ports.runner, ports.claims, ports.observer
        self._spans, self._clock, self._scanners = ports.spans, ports.clock, ports.scanners
        self._in_flight, self._audit_wait = in_flight, audit_wait
        self._accounts = Accounts(ports.spending, ports.clock, ports.observer)
        self._running, self._satisfies = Running(), ports.satisfies
        self._ending: set[asyncio.Future[Any]] = set()

    async def __call__(self, request: Request) -> Result:
        """Return the result of the call, or raise MeshError with the invocation's id."""
        invocation = Invocation(request, self._clock, self._spans.begin())
        self._in_flight.count += 1
        self._running.begin(invocation)
        try:
            return await self._phases(invocation)
        except MeshError as error:
            self._running.end(invocation)
            raise await self._to_the_end(self._failed(invocation, error, invocation.deadline.answer_by)) from None
        except asyncio.CancelledError:
            if (late := await self._interrupted(invocation)) is not None:
                raise late from None
            raise
        except Exception as cause:
            self._running.end(invocation)
            self._observer.unforeseen(cause)
            failure = self._failed(invocation, errors.unforeseen(), invocation.deadline.answer_by)
            raise await self._to_the_end(failure) from cause
        finally:
            self._running.end(invocation)
            self._in_flight.count -= 1
            self._observer.ended(invocation, invocation.elapsed())
            self._accounts.settle(invocation)
            await self._accounts.settled(invocation)

    def withdraw(self, revoked: Callable[[Caller], bool]) -> int:
        """End what runs on authority that was taken back: on record, and answered with TOKEN_REVOKED. Return how many."""
        return self._running.withdraw(revoked)

    async def _phases(self, invocation: Invocation) -> Result:
        begin = invocation.phases.begin

        begin("request")
        self._request(invocation)

        begin("validate")
        tool = self._validate(invocation)

        begin("authorize")
        await self._authorize(invocation, tool)

        begin("execute")
        await self._record_decision(invocation)
        settled = await self._claim(invocation, tool)
        if settled is not None:
            return await self._replay(invocation, tool, settled)
        value = await self._run(invocation, tool)

        begin("verify")
        content, shown = verified(invocation, tool, value, self._scanner(invocation))

        begin("return")
        await self._conclude(invocation, tool, content, shown)
        invocation.phases.end()
        return self._result(invocation, tool, content)

    # Request: the call has an id, time to be served in, and room for its evidence.

    def _request(self, invocation: Invocation) -> None:
        if invocation.deadline.run_until <= self._clock.monotonic():
            raise errors.deadline_exceeded()
        self._audit.admit()

    # Validate: the tool exists and can run here, and the arguments keep its contract.

    def _validate(self, invocation: Invocation) -> Tool:
        request = invocation.request
        tool = invocation.tool = self._tools.resolve(request.tool, request.version)
        if request.tool_digest != tool.digest:
            _refuse_unknown_schema(tool, request.tool_digest)
        sandbox = self._runner.sandbox_for(tool)
        if sandbox is None:
            raise errors.tool_unavailable(tool.name, "no_runner")
        invocation.sandbox = sandbox
        invocation.enter(State.SELECTED)
        if tool.key_required and not request.idempotency_key:
            raise errors.key_required(tool.qualified)
        invocation.arguments, invocation.adjusted = prepare(tool, request.arguments)
        if broken := tool.input.violations(invocation.arguments):
            # Only their digest: what breaks the contract may be secret in ways that the contract does not foresee.
            invocation.asked = Payload(digest(invocation.arguments))
            raise errors.arguments_invalid(broken)
        invocation.asked = describe(invocation.arguments, tool.input, tool, self._scanner(invocation))
        invocation.enter(State.ARGUMENTS_READY)
        return tool

    # Authorize: policy answers; whatever is not a plain yes ends here, on record.

    async def _authorize(self, invocation: Invocation, tool: Tool) -> None:
        caller, asked = invocation.request.caller, invocation.asked.digest if invocation.asked else ""
        question = Question(invocation.invocation_id, invocation.arguments, asked)
        decision = invocation.decision = await self._authorizer.decide(tool, caller, question)
        refused = refusal_of(decision, tool, caller, invocation.arguments, self._satisfies, invocation.sandbox)
        if refused is None:
            invocation.enter(State.APPROVED)
            return
        refusal, state = refused
        invocation.enter(state)
        invocation.reason, invocation.closed = refusal.reason, True
        await self._append(decision_record(invocation, refusal), until=invocation.deadline.answer_by)
        raise refusal

    # Execute: the decision is durable before anything starts; with a key, only the first call runs; under one limit.

    async def _record_decision(self, invocation: Invocation) -> None:
        record = decision_record(invocation)
        invocation.decision_record = record.record_id
        invocation.evidence.append(f"records/{record.record_id}")
        await self._append(record, until=invocation.deadline.run_until)

    async def _claim(self, invocation: Invocation, tool: Tool) -> Settled | None:
        """Take the key, where one was given; or return what the first call with it ended in."""
        request, caller = invocation.request, invocation.request.caller
        if not request.idempotency_key:
            return None
        limit = limit_for(tool, request, invocation.deadline, self._clock)
        claim = Claim(
            tool=tool.qualified,
            subject=caller.subject,
            session=caller.session_id or caller.token_id,
            key=request.idempotency_key,
            # What the caller sent: a default that changes between versions must not turn a retry into a conflict.
            arguments_digest=digest(parse_object(request.arguments)),
            invocation_id=invocation.invocation_id,
            lease=limit.seconds + LEASE_MARGIN,
            window=tool.window,
            repeatable=tool.repeatable,
        )
        within = min(invocation.deadline.run_until - self._clock.monotonic(), _LONGEST_WAIT)
        # Held from here on, as far as this process knows: if the answer is lost to a cancellation, it is given back.
        invocation.claim = claim
        settled = await self._claims.acquire(claim, within=within)
        if settled is not None:
            invocation.claim = None
        return settled

    async def _run(self, invocation: Invocation, tool: Tool) -> Any:
        limit = limit_for(tool, invocation.request, invocation.deadline, self._clock)
        if invocation.decision is not None and invocation.decision.limits:
            limit = await self._accounts.reserve(invocation, invocation.decision, limit)
        invocation.enter(State.RUNNING)
        invocation.attempts = 1
        invocation.ran_from = self._clock.monotonic()
        try:
            async with asyncio.timeout(limit.seconds):
                return await self._runner.run(tool, invocation.arguments, seconds=limit.seconds)
        except TimeoutError:
            raise limit.exceeded() from None
        finally:
            self._accounts.settle(invocation)

    # Return: the outcome is durable, then the caller hears of it.

    async def _conclude(self, invocation: Invocation, tool: Tool, content: bytes, shown: Payload) -> None:
        invocation.enter(State.SUCCEEDED)
        invocation.result_id, invocation.closed = new_id(), True
        record = outcome_record(invocation, result=shown)
        invocation.evidence.append(f"records/{record.record_id}")
        try:
            if invocation.claim is None:
                await self._conclude_record(record, until=invocation.deadline.answer_by)
            else:
                outcome = Settled(invocation.invocation_id, self._result(invocation, tool, content))
                await self._to_the_end(self._keep_and_append(invocation, invocation.claim, outcome, record))
        except MeshError as error:
            raise errors.result_withheld() from error

    async def _keep_and_append(self, invocation: Invocation, claim: Claim, outcome: Settled, record: Record) -> None:
        # First the key's memory: if the log fails now, a retry must find the result and not run the tool again.
        await self._quietly(self._claims.settle(claim, outcome))
        await self._conclude_record(record, until=invocation.deadline.answer_by)

    async def _replay(self, invocation: Invocation, tool: Tool, settled: Settled) -> Result:
        """Answer with what the first call with the key ended in, on record like any other answer."""
        invocation.replayed = True
        first = settled.outcome
        if isinstance(first, MeshError):
            first.metadata["first_invocation"] = settled.invocation_id
            raise first
        invocation.phases.begin("return")
        first = for_this_caller(first, invocation)
        shown = describe(parse(first.content), tool.output, tool, self._scanner(invocation))
        invocation.enter(State.SUCCEEDED)
        invocation.closed = True
        record = outcome_record(invocation, result=shown)
        invocation.evidence.append(f"records/{record.record_id}")
        await self._append(record, until=invocation.deadline.answer_by)
        invocation.phases.end()
        evidence = (*first.evidence, *invocation.evidence)
        trace_id = invocation.request.trace_id
        return replace(first, source=Source.REPLAY, replayed=True, evidence=evidence, trace_id=trace_id)

    def _result(self, invocation: Invocation, tool: Tool, content: bytes) -> Result:
        return Result(
            result_id=invocation.result_id,
            invocation_id=invocation.invocation_id,
            content=content,
            tool_version=tool.name,
            tool_digest=tool.digest,
            source=Source.COMPUTED,
            created=self._clock.now(),
            total=invocation.elapsed(),
            phases=tuple(invocation.phases.durations),
            attempts=invocation.attempts,
            sandbox=invocation.sandbox,
            trace_id=invocation.request.trace_id,
            adjusted=invocation.adjusted,
            changed=invocation.changed,
            deprecation=tool.deprecation,
            evidence=tuple(invocation.evidence),
            policies=invocation.decision.policies if invocation.decision else (),
        )

    # Whatever goes wrong: it is recorded, the key is settled, and the caller gets an error with the invocation's id.

    async def _failed(self, invocation: Invocation, error: MeshError, until: float) -> MeshError:
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
            await (self._conclude_record if invocation.attempts else self._append)(record, until=until)
        except MeshError as unrecorded:
            unrecorded.invocation_id, invocation.reason = invocation.invocation_id, unrecorded.reason
            return unrecorded
        return error

    async def _interrupted(self, invocation: Invocation) -> MeshError | None:
        """Record that the caller left, that its time is over, or that its authority was taken back. The latter two are returned,
        for someone may still listen."""
        now = self._clock.monotonic()
        late, revoked = now >= invocation.deadline.run_until, self._running.withdrawn(invocation)
        self._running.end(invocation)
        error = errors.authority_revoked() if revoked else errors.deadline_exceeded() if late else errors.canceled()
        failure = await self._to_the_end(self._failed(invocation, error, until=now + self._audit_wait))
        return failure if late or revoked else None

    async def _settle(self, invocation: Invocation, error: MeshError) -> None:
        """Give the key back where a retry is safe; otherwise keep what every further call with it must hear."""
        claim, tool = invocation.claim, invocation.tool
        if claim is None or tool is None:
            return
        kept: MeshError | None = None
        if invocation.attempts and error.reason in _UNCERTAIN:
            kept = None if tool.repeatable else errors.outcome_unknown(invocation.invocation_id)
        elif invocation.attempts and not error.row.retryable:
            kept = error
        if kept is None:
            await self._quietly(self._claims.release(claim))
        else:
            await self._quietly(self._claims.settle(claim, Settled(invocation.invocation_id, kept)))

    async def _append(self, record: Record, *, until: float) -> None:
        within = min(until - self._clock.monotonic(), self._audit_wait)
        await self._audit.append(record, within=max(within, 0.001))

    async def _conclude_record(self, record: Record, *, until: float) -> None:
        within = min(until - self._clock.monotonic(), self._audit_wait)
        await self._audit.conclude(record, within=max(within, 0.001))

    def _scanner(self, invocation: Invocation) -> Scanner:
        return self._scanners.of(invocation.request.caller.tenant)

    async def _quietly(self, step: Coroutine[Any, Any, None]) -> None:
        """Take a step whose failure changes nothing for this caller: the claim's lease then speaks for itself."""
        try:
            async with asyncio.timeout(self._audit_wait):
                await step
        except Exception as cause:
            self._observer.unforeseen(cause)

    async def _to_the_end(self, step: Coroutine[Any, Any, T]) -> T:
        """Take a step that goes on even if the caller leaves while it is taken."""
        task = asyncio.ensure_future(step)
        self._ending.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            # Seen by the caller if there still is one; otherwise nobody is left to tell.
            task.exception()


def _refuse_unknown_schema(tool: Tool, pinned: str) -> None:
    """Whoever calls a deferred tool must know its schema, and whoever pins a version gets that one or none."""
    if tool.deferred:
        raise errors.schema_not_loaded(tool.name)
    if pinned:
        raise errors.version_changed(tool.name)
