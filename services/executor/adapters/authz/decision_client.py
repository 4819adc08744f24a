"""Requests policy decisions from authz and caches them for as long as authz allows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Protocol

import grpc
import grpc.aio
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc
from toolmesh.authz.v1 import decision_pb2 as dpb
from toolmesh.common.v1 import error_reason_pb2 as epb

from libs.authz_client.tool_attributes import trust_age_hours
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from libs.common.runtime.single_flight import SingleFlight
from services.executor.adapters.telemetry.metrics import decisions
from services.executor.domain import errors
from services.executor.domain.model import Caller, Decision, Obligation, Question, SpendingLimit, Verdict
from services.executor.domain.tool import Tool, ToolTrust

CACHE_SIZE = 10_000
# For calls without a deadline; otherwise the call's remaining time applies.
CHECK_SECONDS = 10.0
# The contract's limits of a CheckRequest.
MAX_ARGUMENTS, MAX_BOUNDED_ARGUMENTS = 1024 * 1024, 3 * 1024 * 1024
MAX_RESOURCES, MAX_RESOURCE_LENGTH = 256, 2048
MAX_REASONS, MAX_REASON_LENGTH, MAX_PATH_LENGTH = 64, 2048, 1024

_PASSED_ON = frozenset({Reason.POLICY_ENGINE_ERROR, Reason.DEADLINE_EXCEEDED})

# How long an authz replica may take to load a policy change of another replica, and the polling interval meanwhile.
_RELOAD_SECONDS, _RELOAD_PAUSE = 1.5, 0.05

# Label lookup is the expensive part of a counter, so it is done once.
_CACHED_DECISIONS, _REQUESTED_DECISIONS = decisions.labels("remembered"), decisions.labels("asked")

CacheKey = tuple[str, str, str, str, str, ToolTrust, str]


class PolicySetStatus(Protocol):
    """The active policy set, as far as this process knows."""

    @property
    def policy_set_version(self) -> str:
        """The version of the active policy set."""
        ...

    def believed(self) -> bool:
        """Return whether the knowledge is recent enough to rely on."""
        ...

    def outdated(self, policy_set_version: str) -> bool:
        """Return whether this set is known to have been replaced."""
        ...


class PolicyAuthorizer:
    """Requests a decision from authz, or returns the cached one until it expires or the policy set changes.

    The cache is not used while the active policy set is unknown.
    """

    def __init__(
        self, channel: grpc.aio.Channel, clock: Clock, policies: PolicySetStatus, *, cache_size: int = CACHE_SIZE
    ) -> None:
        self._stub = rpc.AuthzServiceStub(channel)
        self._clock, self._policies = clock, policies
        self._version = ""
        self._cache: BoundedCache[CacheKey, Decision] = BoundedCache(cache_size)
        self._requests: SingleFlight[CacheKey, Decision] = SingleFlight()

    async def decide(self, tool: Tool, caller: Caller, question: Question) -> Decision:
        """Return the policy decision. Raises if no decision could be made."""
        version = self._policies.policy_set_version
        if version != self._version:
            self._version = version
            self._cache.clear()
        # Everything that a cacheable decision may depend on.
        key = (version, caller.token_id, tool.name, tool.digest, caller.session_id, tool.trust, tool.health)
        cached = self._cache.get(key)
        if cached is not None and self._policies.believed():
            if cached.expires_at > self._clock.now().timestamp():
                _CACHED_DECISIONS.inc()
                return cached
            del self._cache[key]
        _REQUESTED_DECISIONS.inc()
        return await self._request_current(key, _facts(tool, caller, question, self._now()))

    async def refuse(self, tool: Tool, caller: Caller, question: Question, refusal: Decision) -> Decision:
        try:
            request = pb.CheckRequest(call=_facts(tool, caller, question, self._now()), refusal=_refusal(refusal))
            response = await self._stub.Check(request, timeout=CHECK_SECONDS)
        except (grpc.aio.AioRpcError, MeshError):
            # The call stays refused, and its record says so.
            return replace(refusal, name="", made_for=question.invocation_id)
        version = response.decision.policy_set_version
        return replace(
            refusal, name=response.decision.name, policy_set_version=version, made_for=question.invocation_id
        )

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def outdated(self, decision: Decision) -> bool:
        return self._policies.outdated(decision.policy_set_version)

    async def _request_current(self, key: CacheKey, facts: pb.CallFacts) -> Decision:
        """Repeat the request until a replica answers that has loaded the active policy set."""
        give_up = self._clock.monotonic() + _RELOAD_SECONDS
        while True:
            decision = await self._request_shared(key, facts)
            if not self.outdated(decision):
                return decision
            if self._clock.monotonic() >= give_up:
                raise MeshError(Reason.SERVICE_UNAVAILABLE, message="the policies are being replaced", retry_after=1.0)
            await asyncio.sleep(_RELOAD_PAUSE)

    async def _request_shared(self, key: CacheKey, facts: pb.CallFacts) -> Decision:
        """Share one request among concurrent calls with the same key."""
        while True:
            leads = False

            def request() -> Coroutine[Any, Any, Decision]:
                nonlocal leads
                leads = True
                return self._request_and_cache(key, facts)

            try:
                # In this call's context: the request carries its token and its deadline.
                decision = await self._requests.run(key, request, context=copy_context())
            except MeshError as error:
                if error.reason is Reason.DEADLINE_EXCEEDED and not leads:
                    # The call that sent the request may have had less time than this one.
                    continue
                # Copied, because each call adds its own metadata to its error.
                raise MeshError(error.reason, message=error.message, retry_after=error.retry_after) from error
            # A decision that is not cacheable is valid only for the arguments of the call that sent the request.
            return decision if leads or decision.cacheable else await self._request(facts)

    async def _request_and_cache(self, key: CacheKey, facts: pb.CallFacts) -> Decision:
        decision = await self._request(facts)
        # Only decisions of the active policy set are cached, under its version.
        current = decision.policy_set_version == self._policies.policy_set_version and self._policies.believed()
        if decision.cacheable and current and decision.expires_at > self._clock.now().timestamp():
            self._cache.put((decision.policy_set_version, *key[1:]), decision)
        return decision

    async def _request(self, facts: pb.CallFacts) -> Decision:
        try:
            response = await self._stub.Check(pb.CheckRequest(call=facts), timeout=CHECK_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _request_error(from_rpc_error(error)) from None
        return replace(_decision(response.decision), made_for=facts.invocation_id)


def _request_error(error: MeshError) -> MeshError:
    """Pass on errors about the token or the time; map every other error to SERVICE_UNAVAILABLE."""
    if error.reason in _PASSED_ON or error.reason.name.startswith("TOKEN_"):
        return error
    return MeshError(Reason.SERVICE_UNAVAILABLE, message="no decision could be made about the call", retry_after=1.0)


def _facts(tool: Tool, caller: Caller, question: Question, now: float) -> pb.CallFacts:
    """Build the attributes of a policy check.

    Arguments that are too large are left out, and policies that read them deny. The limit is higher if the token
    constrains arguments, because a check without arguments would then be denied.
    """
    arguments = dump(question.arguments)
    max_bytes = MAX_ARGUMENTS if caller.confined is None else MAX_BOUNDED_ARGUMENTS
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
        arguments=arguments if len(arguments) <= max_bytes else b"",
        resources=_checked_resources(question.resources),
        closed_world=tool.closed_world,
        tool_trust=tool.trust.score,
        tool_trust_age_hours=trust_age_hours(tool.trust.computed_at, now),
        tool_stage=tool.trust.stage,
        publisher_verified=tool.trust.publisher_verified,
        tool_health=tool.health,
        result_labels=tool.result_labels,
        risk=dict(question.risk),
    )


def _refusal(decision: Decision) -> pb.Refusal:
    message = pb.Refusal(
        reasons=[reason[:MAX_REASON_LENGTH] for reason in decision.reasons[:MAX_REASONS]],
        blocked_path=decision.blocked_path[:MAX_PATH_LENGTH],
        follows=decision.name,
    )
    if decision.verdict is Verdict.NEEDS_APPROVAL:
        message.needs_approval.approver_groups.extend(decision.approver_groups)
        message.needs_approval.quorum = decision.quorum
        message.needs_approval.reason_required = decision.reason_required
    else:
        message.deny.reason = epb.ErrorReason.ValueType(decision.deny_reason)
    return message


def _checked_resources(resources: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a call with too many resources, because policy would see only a part of them."""
    if len(resources) > MAX_RESOURCES or any(len(resource) > MAX_RESOURCE_LENGTH for resource in resources):
        raise errors.too_many_resources(MAX_RESOURCES, MAX_RESOURCE_LENGTH)
    return resources


def _decision(message: dpb.Decision) -> Decision:
    return Decision(
        name=message.name,
        verdict=_verdict(message),
        deny_reason=_deny_reason(message),
        blocked_path=message.blocked_path,
        reasons=tuple(message.reasons),
        policies=tuple(message.determining_policies),
        policy_set_version=message.policy_set_version,
        obligations=_obligations(message),
        approver_groups=tuple(message.needs_approval.approver_groups),
        quorum=message.needs_approval.quorum,
        reason_required=message.needs_approval.reason_required,
        suggestions=tuple((update.kind, update.value) for update in message.suggested_updates),
        cacheable=message.cacheable,
        expires_at=message.expire_time.ToMicroseconds() / 1e6,
        limits=tuple(_limit(limit) for limit in message.limits),
        cost_micros=message.cost_micros,
    )


def _limit(message: dpb.Limit) -> SpendingLimit:
    return SpendingLimit(
        bucket=message.bucket,
        window=message.window.ToMicroseconds() / 1e6 if message.HasField("window") else None,
        max_calls=message.max_calls if message.HasField("max_calls") else None,
        max_cost_micros=message.max_cost_micros if message.HasField("max_cost_micros") else None,
        max_concurrent=message.max_concurrent if message.HasField("max_concurrent") else None,
        max_running=message.max_running_time.ToMicroseconds() / 1e6 if message.HasField("max_running_time") else None,
        expires_at=message.expire_time.ToMicroseconds() / 1e6 if message.HasField("expire_time") else None,
        source=message.source,
    )


def _verdict(message: dpb.Decision) -> Verdict:
    """Return ALLOW only for an enforced, final decision; a decision without outcome denies."""
    outcome = message.WhichOneof("outcome")
    if outcome == "needs_approval":
        return Verdict.NEEDS_APPROVAL
    final = not message.pending_classifier_check and message.mode != dpb.DECISION_MODE_SHADOW
    return Verdict.ALLOW if outcome == "allow" and final else Verdict.DENY


def _deny_reason(message: dpb.Decision) -> Reason:
    number = int(message.deny.reason)
    return Reason(number) if number in Reason.__members__.values() else Reason.PERMISSION_DENIED


def _obligations(message: dpb.Decision) -> tuple[Obligation, ...]:
    """Return the obligations. Updated arguments count as an obligation to use them."""
    kinds = dpb.ObligationKind
    known = kinds.values()
    named = [
        Obligation(
            kinds.Name(o.kind).removeprefix("OBLIGATION_KIND_").lower() if o.kind in known else str(o.kind),
            tuple(o.values),
        )
        for o in message.obligations
    ]
    return (*named, Obligation("updated_input")) if message.updated_input else tuple(named)
