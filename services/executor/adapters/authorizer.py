"""Policy, asked over the mesh and remembered for as long as it says its answer holds."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc
from toolmesh.authz.v1 import decision_pb2 as dpb

from libs.common.clock import Clock
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.executor.domain.model import Caller, Decision, Tool, Verdict

REMEMBERED = 10_000
# For callers without a deadline of their own; everyone else's deadline shrinks by one hop.
CHECK_SECONDS = 10.0

_TOLD = frozenset({Reason.POLICY_ENGINE_ERROR, Reason.DEADLINE_EXCEEDED})

Key = tuple[str, str, str, str]


class PolicyAuthorizer:
    """Asks authz once per question. A cached answer is the same decision, under the same name, until it expires."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, *, remember: int = REMEMBERED) -> None:
        self._stub = rpc.AuthzServiceStub(channel)
        self._clock, self._remember = clock, remember
        self._known: dict[Key, Decision] = {}
        self._asking: dict[Key, asyncio.Task[Decision]] = {}

    async def decide(self, tool: Tool, caller: Caller, arguments_digest: str, invocation_id: str) -> Decision:
        """Return what policy answers. Raises when no decision could be made."""
        # Everything that policy reads and that can differ between two calls whose answer it calls cacheable.
        key = (caller.token_id, tool.name, tool.digest, caller.session_id)
        known = self._known.get(key)
        if known is not None:
            if known.expires_at > self._clock.now().timestamp():
                return known
            del self._known[key]
        return await self._ask_together(key, _facts(tool, caller, arguments_digest, invocation_id))

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
        if decision.cacheable and decision.expires_at > self._clock.now().timestamp():
            if len(self._known) >= self._remember:
                del self._known[next(iter(self._known))]
            self._known[key] = decision

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


def _facts(tool: Tool, caller: Caller, arguments_digest: str, invocation_id: str) -> pb.CallFacts:
    return pb.CallFacts(
        tool_version=tool.name,
        tool_digest=tool.digest,
        mutation_class=tool.mutation,
        required_scopes=tool.required_scopes,
        required_permissions=tool.required_permissions,
        tags=tool.tags,
        approval_always=tool.approval_always,
        impact_scope=tool.impact_scope,
        arguments_digest=arguments_digest,
        session_id=caller.session_id,
        invocation_id=invocation_id,
    )


def _decision(found: dpb.Decision) -> Decision:
    return Decision(
        name=found.name,
        verdict=_verdict(found),
        deny_reason=_deny_reason(found),
        reasons=tuple(found.reasons),
        policies=tuple(found.determining_policies),
        policy_set_version=found.policy_set_version,
        obligations=_obligations(found),
        approver_groups=tuple(found.needs_approval.approver_groups),
        quorum=found.needs_approval.quorum,
        suggestions=tuple((update.kind, update.value) for update in found.suggested_updates),
        cacheable=found.cacheable,
        expires_at=found.expire_time.ToMicroseconds() / 1e6,
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


def _obligations(found: dpb.Decision) -> tuple[str, ...]:
    """What the decision binds the executor to. Replaced arguments are an obligation like any other: to use them."""
    kinds = dpb.ObligationKind
    known = kinds.values()
    named = [
        kinds.Name(o.kind).removeprefix("OBLIGATION_KIND_").lower() if o.kind in known else str(o.kind)
        for o in found.obligations
    ]
    return (*named, "updated_input") if found.updated_input else tuple(named)
