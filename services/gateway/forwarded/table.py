"""The forwarded methods: the RPC behind each, and its policy row. An RPC without a row has no method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from toolmesh.approval.v1 import approval_service_pb2
from toolmesh.authz.v1 import token_service_pb2
from toolmesh.executor.v1 import invocation_service_pb2, key_service_pb2, tool_log_service_pb2

from services.gateway.domain.rate_limits import TOKENS, Rate
from services.gateway.method import Row

_APPROVALS = approval_service_pb2.DESCRIPTOR.services_by_name["ApprovalService"]
_INVOCATIONS = invocation_service_pb2.DESCRIPTOR.services_by_name["InvocationService"]
_KEYS = key_service_pb2.DESCRIPTOR.services_by_name["KeyService"]
_LOGS = tool_log_service_pb2.DESCRIPTOR.services_by_name["ToolLogService"]
_TOKENS = token_service_pb2.DESCRIPTOR.services_by_name["TokenService"]
# The longest wait of a caller, as long as WaitInvocation allows.
_LONG_POLL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Forwarded:
    """One RPC of a peer as a method."""

    peer: str
    rpc: MethodDescriptor
    row: Row
    inline: str = ""
    """A field of the request whose own fields are parameters of the method."""

    @property
    def path(self) -> str:
        """The path of the RPC."""
        return f"/{self.rpc.containing_service.full_name}/{self.rpc.name}"


def _read(peer: str, service: ServiceDescriptor, rpc: str, *, deadline: float = 10.0) -> Forwarded:
    return Forwarded(peer, service.methods_by_name[rpc], Row(deadline=deadline, idempotent=True))


def _write(
    peer: str,
    service: ServiceDescriptor,
    rpc: str,
    *,
    deadline: float = 10.0,
    inline: str = "",
    rate: Rate | None = None,
) -> Forwarded:
    return Forwarded(peer, service.methods_by_name[rpc], Row(deadline=deadline, idempotent=False, rate=rate), inline)


FORWARDED: Mapping[str, Forwarded] = {
    "invocations.start": _write("executor", _INVOCATIONS, "StartInvocation", deadline=30.0, inline="request"),
    "invocations.get": _read("executor", _INVOCATIONS, "GetInvocation"),
    "invocations.list": _read("executor", _INVOCATIONS, "ListInvocations"),
    "invocations.wait": _read("executor", _INVOCATIONS, "WaitInvocation", deadline=_LONG_POLL_SECONDS),
    "invocations.cancel": _read("executor", _INVOCATIONS, "CancelInvocation"),
    "invocations.resume": _write("executor", _INVOCATIONS, "ResumeInvocation", deadline=30.0),
    "invocations.list_checkpoints": _read("executor", _INVOCATIONS, "ListCheckpoints"),
    "invocations.delete_checkpoint": _read("executor", _INVOCATIONS, "DeleteCheckpoint"),
    "invocations.list_callback_deliveries": _read("executor", _INVOCATIONS, "ListCallbackDeliveries"),
    "invocations.redeliver_callback": _read("executor", _INVOCATIONS, "RedeliverCallback"),
    "keys.list": _read("executor", _KEYS, "ListKeys"),
    "keys.get": _read("executor", _KEYS, "GetKey"),
    "keys.settle": _write("executor", _KEYS, "SettleKey"),
    "logs.list": _read("executor", _LOGS, "ListToolLogs"),
    "approvals.get": _read("approval", _APPROVALS, "GetTicket"),
    "approvals.list": _read("approval", _APPROVALS, "ListTickets"),
    # Votes, denials and the others may be repeated: a second one of the same person changes nothing.
    "approvals.approve": _read("approval", _APPROVALS, "ApproveTicket"),
    "approvals.deny": _read("approval", _APPROVALS, "DenyTicket"),
    "approvals.cancel": _read("approval", _APPROVALS, "CancelTicket"),
    "approvals.override": _read("approval", _APPROVALS, "OverrideTicket"),
    "approvals.review": _read("approval", _APPROVALS, "ReviewOverride"),
    "tokens.exchange": _write("authz", _TOKENS, "ExchangeToken", rate=TOKENS),
    "tokens.revoke": _read("authz", _TOKENS, "RevokeToken"),
    "tokens.list_revocations": _read("authz", _TOKENS, "ListRevocations"),
}
