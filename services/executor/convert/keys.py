"""Converts messages of KeyService. Pure."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import idempotency_key_pb2 as kpb
from toolmesh.executor.v1 import key_service_pb2 as pb

from libs.common.call_context import Call
from services.executor.convert.invocation import caller_of
from services.executor.domain.idempotency.settle_key import Settlement
from services.executor.domain.idempotency.stored_key import SETTLEABLE, KeyFilter, KeyState, StoredKey
from services.executor.domain.model import Caller

_STATES = {state: kpb.KeyState.Value(f"KEY_STATE_{state.name}") for state in KeyState}
_STATE_NAMES = {number: state for state, number in _STATES.items()}


def filter_of(message: pb.ListKeysRequest, call: Call) -> KeyFilter:
    """Return which keys are listed."""
    tool = message.tool.removeprefix("tools/")
    return KeyFilter(
        states=tuple(_STATE_NAMES[state] for state in message.states) or SETTLEABLE,
        tool=f"core.{tool}" if tool and "." not in tool else tool,
        subject=message.subject,
        key=message.key,
        tenant=tenant_of(call),
    )


def tenant_of(call: Call) -> str | None:
    """Return the tenant whose keys a caller reaches; None for all, if it has no tenant."""
    return call.tenant or None


def settlement_of(message: pb.SettleKeyRequest, call: Call) -> Settlement:
    """Return what an operator found out, and who it is."""
    return Settlement(
        name=message.name,
        result=message.result if message.HasField("result") else None,
        reason=message.reason,
        caller=_admin_of(call),
        tenant=tenant_of(call),
        trace_id=call.trace.trace_id,
    )


def key_message(key: StoredKey) -> kpb.IdempotencyKey:
    """Return a key as its message."""
    return kpb.IdempotencyKey(
        name=key.name,
        tenant=key.tenant,
        tool=key.tool,
        subject=key.subject,
        session_id=key.session,
        key=key.key,
        state=kpb.KeyState.ValueType(_STATES[key.state]),
        invocation_id=key.invocation_id,
        unresolved_invocations=key.unresolved,
        arguments_digest=key.arguments_digest,
        create_time=_timestamp(key.created),
        expire_time=_timestamp(key.expires),
    )


def _admin_of(call: Call) -> Caller:
    """Return the caller; a peer that acts by its certificate has no token."""
    if call.identity is not None:
        return caller_of(call.identity, "", call.peer)
    return Caller(subject="", token_id="", expires_at=0.0, authority_ends=0.0, tier="", peer=call.peer)


def _timestamp(moment: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp
