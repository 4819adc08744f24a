"""Asks the approval service for tickets, and redeems them."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc
from toolmesh.approval.v1 import ticket_pb2 as tpb
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import parse_object
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.rpc.tls_files import Credentials
from libs.common.runtime.setting_types import Address, PeerAddress
from services.executor.domain.approvals.ticket import Redemption, Ticket, TicketDraft
from services.executor.domain.model import Caller

_SERVICE = "toolmesh.approval.v1.ApprovalService"
_TIERS = {"user", "agent", "invocation"}
# The contract's limits of a ticket.
_MAX_REASON, _MAX_LISTED, _MAX_GROUPS, _MAX_QUORUM = 2000, 64, 64, 100
# The answers about a ticket that the caller gets as they are.
_PASSED_ON = frozenset(
    {Reason.APPROVAL_REQUIRED, Reason.APPROVAL_REJECTED, Reason.SELF_APPROVAL, Reason.NOT_FOUND, Reason.RATE_LIMITED}
    | {reason for reason in Reason if reason.name.startswith("TICKET_")}
)


def ticket_channel(address: Address | PeerAddress, credentials: Credentials) -> grpc.aio.Channel:
    """Open the channel to approval. All methods are safe to repeat."""
    retried = ("CreateTicket", "RedeemTicket", "GetTicket", "CancelTicket")
    return channel_to("approval", address, credentials, service=_SERVICE, retry=retried, for_callers=False)


class TicketClient:
    """The client of the approval service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = rpc.ApprovalServiceStub(channel)

    async def create(self, draft: TicketDraft, *, within: float) -> Ticket:
        """Implement `Approvals.create`."""
        response = await _answer(self._stub.CreateTicket(_create_request(draft), timeout=within))
        return _ticket(response.ticket)

    async def redeem(self, use: Redemption, *, validate_only: bool, within: float) -> Ticket:
        """Implement `Approvals.redeem`."""
        request = pb.RedeemTicketRequest(
            name=use.ticket,
            requester=_caller(use.caller),
            tool_version=use.tool.name,
            tool_digest=use.tool.digest,
            arguments_digest=use.arguments_digest,
            policy_set_version=use.policy_set_version,
            redemption_id=use.redemption_id,
            invocation=f"invocations/{use.invocation_id}",
            validate_only=validate_only,
        )
        return _ticket((await _answer(self._stub.RedeemTicket(request, timeout=within))).ticket)

    async def get(self, name: str, *, within: float) -> Ticket:
        """Implement `Approvals.get`."""
        return _ticket((await _answer(self._stub.GetTicket(pb.GetTicketRequest(name=name), timeout=within))).ticket)

    async def cancel(self, name: str, *, within: float) -> None:
        """Implement `Approvals.cancel`."""
        await _answer(self._stub.CancelTicket(pb.CancelTicketRequest(name=name), timeout=within))


async def _answer(call: Any) -> Any:
    """Return the answer of a call. Errors about the ticket are passed on; every other one is SERVICE_UNAVAILABLE."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        failure = from_rpc_error(error)
        if failure.reason in _PASSED_ON:
            raise MeshError(
                failure.reason, message=failure.message, metadata=failure.metadata, retry_after=failure.retry_after
            ) from None
        message = "approvals are not available at present"
        raise MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0) from None


def _create_request(draft: TicketDraft) -> pb.CreateTicketRequest:
    tool, decision = draft.tool, draft.decision
    return pb.CreateTicketRequest(
        request_id=draft.invocation_id,
        tool_version=tool.name,
        tool_digest=tool.digest,
        arguments_digest=draft.arguments_digest,
        redacted_arguments=draft.redacted_arguments,
        requester=_caller(draft.caller),
        invocation=f"invocations/{draft.invocation_id}",
        decision=decision.name,
        policy_set_version=decision.policy_set_version,
        reason=" ".join(decision.reasons)[:_MAX_REASON],
        escalation_chain=decision.approver_groups[:_MAX_GROUPS],
        quorum=min(decision.quorum, _MAX_QUORUM),
        preview=draft.preview,
        risk=tpb.RiskFacts(
            mutation_class=tool.mutation,
            impact_scope=tool.impact_scope,
            tags=list(tool.tags)[:_MAX_LISTED],
            declared_effects=tool.side_effects[:_MAX_LISTED],
            resources=draft.resources[:_MAX_LISTED],
            sandbox=draft.sandbox,
            scores=dict(draft.risk[:_MAX_LISTED]),
        ),
        policies=decision.policies[:_MAX_LISTED],
        reason_required=decision.reason_required,
    )


def _caller(caller: Caller) -> caller_pb2.Caller:
    tier = caller.tier if caller.tier in _TIERS else "unspecified"
    return caller_pb2.Caller(
        subject=caller.subject,
        agent=caller.agent,
        tenant=caller.tenant,
        tier=caller_pb2.CredentialTier.Value(f"CREDENTIAL_TIER_{tier.upper()}"),
        token_id=caller.token_id,
        delegation_chain=[caller_pb2.Actor(subject=subject, token_id=token) for subject, token in caller.chain],
        scopes=caller.scopes,
        session_id=caller.session_id,
        peer=caller.peer,
        expire_time=Timestamp(seconds=int(caller.expires_at)),
    )


def _ticket(message: tpb.Ticket) -> Ticket:
    return Ticket(
        name=message.name,
        state=tpb.TicketState.Name(message.state).removeprefix("TICKET_STATE_").lower(),
        expires=message.expire_time.ToDatetime(tzinfo=UTC),
        previewed=bool(message.preview) and "failed" not in parse_object(message.preview),
    )
