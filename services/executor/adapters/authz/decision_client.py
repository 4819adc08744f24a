"""Policy, asked over the mesh and remembered for as long as it says its answer holds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

import grpc
import grpc.aio
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc
from toolmesh.authz.v1 import decision_pb2 as dpb

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import Clock
from services.executor.adapters.telemetry.metrics import decisions
from services.executor.domain import errors
from services.executor.domain.model import Caller, Decision, Obligation, Question, SpendingLimit, Verdict
from services.executor.domain.tool import Tool

REMEMBERED = 10_000
# For callers without a deadline of their own; everyone else's deadline shrinks by one hop.
CHECK_SECONDS = 10.0
# What the contract lets a question carry.
MAX_ARGUMENTS, MAX_BOUNDED_ARGUMENTS = 1024 * 1024, 3 * 1024 * 1024
MAX_RESOURCES, MAX_RESOURCE_LENGTH = 256, 2048

_TOLD = frozenset({Reason.POLICY_ENGINE_ERROR, Reason.DEADLINE_EXCEEDED})

# How long a replica of authz may take to follow another one's change of policies, and how often it is asked meanwhile.
_FOLLOW_SECONDS, _FOLLOW_PAUSE = 1.5, 0.05

# Looked up once, because that is what costs.
_REMEMBERED_DECISIONS, _ASKED_DECISIONS = decisions.labels("remembered"), decisions.labels("asked")

Key = tuple[str, str, str, str, str]


class PolicyNews(Protocol):
    """What is known of the policies that are asked now."""

    @property
    def policy_set_version(self) -> str:
        """The set that is asked."""
        ...

    def believed(self) -> bool:
        """Say whether that is known well enough to rely on."""
        ...

    def outdated(self, policy_set_version: str) -> bool:
        """Say whether this set is known to have been replaced."""
        ...


class PolicyAuthorizer:
    """Asks authz once per question. A cached answer is the same decision, under the same name, until it expires or other
    policies are asked; it is not used while nobody knows which policies are asked."""

    def __init__(
        self, channel: grpc.aio.Channel, clock: Clock, news: PolicyNews, *, remember: int = REMEMBERED
    ) -> None:
        self._stub = rpc.AuthzServiceStub(channel)
        self._clock, self._news, self._remember = clock, news, remember
        self._version = ""
        self._known: OrderedDict[Key, Decision] = OrderedDict()
        self._asking: dict[Key, asyncio.Task[Decision]] = {}

    async def decide(self, tool: Tool, caller: Caller, question: Question) -> Decision:
        """Return what policy answers. Raises when no decision could be made."""
        version = self._news.policy_set_version
        if version != self._version:
            self._version = version
            self._known.clear()
        # Everything that policy reads and that can differ between two calls whose answer it calls cacheable.
        key = (version, caller.token_id, tool.name, tool.digest, caller.session_id)
        known = self._known.get(key)
        if known is not None and self._news.believed():
            if known.expires_at > self._clock.now().timestamp():
                _REMEMBERED_DECISIONS.inc()
                return known
            del self._known[key]
        _ASKED_DECISIONS.inc()
        return await self._ask_until_current(key, _facts(tool, caller, question))

    def outdated(self, decision: Decision) -> bool:
        return self._news.outdated(decision.policy_set_version)

    async def _ask_until_current(self, key: Key, facts: pb.CallFacts) -> Decision:
        """Ask until the answer is not by policies that are known to be replaced: a replica may still have to follow."""
        give_up = self._clock.monotonic() + _FOLLOW_SECONDS
        while True:
            decision = await self._ask_together(key, facts)
            if not self.outdated(decision):
                return decision
            if self._clock.monotonic() >= give_up:
                raise MeshError(Reason.SERVICE_UNAVAILABLE, message="the policies are being replaced", retry_after=1.0)
            await asyncio.sleep(_FOLLOW_PAUSE)

    async def _ask_together(self, key: Key, facts: pb.CallFacts) -> Decision:
        """Ask once for everyone who comes with the same key meanwhile."""
        while (asking := self._asking.get(key)) is not None:
            try:
                answer = await _shared(asking)
            except MeshError as error:
                if error.reason is Reason.DEADLINE_EXCEEDED:
                    # Whoever asked had less time than this caller may have.
                    continue
                raise
            # An answer that does not hold for other arguments was not given to this question.
            return answer if answer.cacheable else await self._ask(facts)
        return await _shared(self._lead(key, facts))

    def _lead(self, key: Key, facts: pb.CallFacts) -> asyncio.Task[Decision]:
        """Ask, and go on if the one who asked leaves: others may have come to wait for the answer."""
        asking = asyncio.create_task(self._ask(facts))
        self._asking[key] = asking
        asking.add_done_callback(lambda done: self._answered(key, done))
        return asking

    def _answered(self, key: Key, asking: asyncio.Task[Decision]) -> None:
        del self._asking[key]
        if asking.cancelled() or asking.exception() is not None:
            return
        decision = asking.result()
        # Only what the present policies answered, and only under their name.
        current = decision.policy_set_version == self._news.policy_set_version and self._news.believed()
        if decision.cacheable and current and decision.expires_at > self._clock.now().timestamp():
            if len(self._known) >= self._remember:
                self._known.popitem(last=False)
            self._known[(decision.policy_set_version, *key[1:])] = decision

    async def _ask(self, facts: pb.CallFacts) -> Decision:
        try:
            response = await self._stub.Check(pb.CheckRequest(call=facts), timeout=CHECK_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _no_decision(from_rpc_error(error)) from None
        return _decision(response.decision)


async def _shared(asking: asyncio.Task[Decision]) -> Decision:
    """Wait for an answer that others wait for too. A failure is copied, because each caller adds its own facts to it."""
    try:
        return await asyncio.shield(asking)
    except MeshError as error:
        raise MeshError(error.reason, message=error.message, retry_after=error.retry_after) from error


def _no_decision(error: MeshError) -> MeshError:
    """What authz says about the token or the time concerns the caller; everything else means that nobody decided."""
    if error.reason in _TOLD or error.reason.name.startswith("TOKEN_"):
        return error
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="no decision could be made about the call", retry_after=1.0)


def _facts(tool: Tool, caller: Caller, question: Question) -> pb.CallFacts:
    """Everything about the call that policy may read. What is too large to be told is not: policies that read it deny. Arguments that the
    token bounds are told as large as a call may have them, for a caller who tells none is denied."""
    arguments = dump(question.arguments)
    most = MAX_ARGUMENTS if caller.confined is None else MAX_BOUNDED_ARGUMENTS
    return pb.CallFacts(
        tool_version=tool.name,
        tool_digest=tool.digest,
        mutation_class=tool.mutation,
        required_scopes=tool.required_scopes,
        required_permissions=tool.required_permissions,
        tags=tool.tags,
        approval_always=tool.approval_always,
        impact_scope=tool.impact_scope,
        arguments_digest=question.arguments_digest,
        session_id=caller.session_id,
        invocation_id=question.invocation_id,
        arguments=arguments if len(arguments) <= most else b"",
        resources=() if tool.resources is None else _told(tool.resources(question.arguments)),
        closed_world=tool.closed_world,
        tool_trust=tool.trust,
        result_labels=tool.result_labels,
        risk=dict(question.risk),
    )


def _told(resources: tuple[str, ...]) -> tuple[str, ...]:
    """A call that names more than can be told is refused: policy would judge it by a part of what it reaches."""
    if len(resources) > MAX_RESOURCES or any(len(resource) > MAX_RESOURCE_LENGTH for resource in resources):
        raise errors.resources_untold(MAX_RESOURCES, MAX_RESOURCE_LENGTH)
    return resources


def _decision(found: dpb.Decision) -> Decision:
    return Decision(
        name=found.name,
        verdict=_verdict(found),
        deny_reason=_deny_reason(found),
        blocked_path=found.blocked_path,
        reasons=tuple(found.reasons),
        policies=tuple(found.determining_policies),
        policy_set_version=found.policy_set_version,
        obligations=_obligations(found),
        approver_groups=tuple(found.needs_approval.approver_groups),
        quorum=found.needs_approval.quorum,
        suggestions=tuple((update.kind, update.value) for update in found.suggested_updates),
        cacheable=found.cacheable,
        expires_at=found.expire_time.ToMicroseconds() / 1e6,
        limits=tuple(_limit(limit) for limit in found.limits),
        cost_micros=found.cost_micros,
    )


def _limit(found: dpb.Limit) -> SpendingLimit:
    return SpendingLimit(
        bucket=found.bucket,
        window=found.window.ToMicroseconds() / 1e6 if found.HasField("window") else None,
        max_calls=found.max_calls if found.HasField("max_calls") else None,
        max_cost_micros=found.max_cost_micros if found.HasField("max_cost_micros") else None,
        max_concurrent=found.max_concurrent if found.HasField("max_concurrent") else None,
        max_running=found.max_running_time.ToMicroseconds() / 1e6 if found.HasField("max_running_time") else None,
        expires_at=found.expire_time.ToMicroseconds() / 1e6 if found.HasField("expire_time") else None,
        source=found.source,
    )


def _verdict(found: dpb.Decision) -> Verdict:
    """Only an answer that is enforced and final allows anything; an absent one denies."""
    outcome = found.WhichOneof("outcome")
    if outcome == "needs_approval":
        return Verdict.NEEDS_APPROVAL
    final = not found.pending_classifier_check and found.mode != dpb.DECISION_MODE_SHADOW
    return Verdict.ALLOW if outcome == "allow" and final else Verdict.DENY


def _deny_reason(found: dpb.Decision) -> Reason:
    number = int(found.deny.reason)
    return Reason(number) if number in Reason.__members__.values() else Reason.PERMISSION_DENIED


def _obligations(found: dpb.Decision) -> tuple[Obligation, ...]:
    """What the decision binds the executor to. Replaced arguments are an obligation like any other: to use them."""
    kinds = dpb.ObligationKind
    known = kinds.values()
    named = [
        Obligation(
            kinds.Name(o.kind).removeprefix("OBLIGATION_KIND_").lower() if o.kind in known else str(o.kind),
            tuple(o.values),
        )
        for o in found.obligations
    ]
    return (*named, Obligation("updated_input")) if found.updated_input else tuple(named)
