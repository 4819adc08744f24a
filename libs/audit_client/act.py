"""Administrative acts, and their canonical form as audit records.

The form is that of `services/audit/README.md`: RFC 8785 JSON with the contract's field names. It names the caller of
the current call; an act outside of a call is the service's own and has no caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum, auto
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from libs.common.auth.identity import Identity
from libs.common.call_context import Call, current_call
from libs.common.ids import new_id
from libs.common.json.canonical import canonical, digest_bytes
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.rpc.holder_check import peer_thumbprint

_MAX_RESOURCE, _MAX_REASON, _MAX_SUMMARY_BYTES, _MAX_TOOL = 512, 2048, 16_384, 512


class ActKind(StrEnum):
    """The event classes of administrative acts, in canonical form."""

    TOOL_DECLARED = auto()
    POLICY_PUT = auto()
    POLICY_ACTIVATED = auto()
    POLICY_ROLLED_BACK = auto()
    TOKEN_ISSUED = auto()
    TOKEN_DELEGATED = auto()
    TOKEN_NARROWED = auto()
    TOKEN_EXCHANGED = auto()
    TOKEN_REVOKED = auto()
    TOOL_STATE_CHANGED = auto()
    TOOL_TRUST_CHANGED = auto()
    TOOL_ALIAS_MOVED = auto()
    NAMESPACE_CHANGED = auto()
    KEY_SETTLED = auto()
    UPSTREAM_CHANGED = auto()
    CIRCUIT_CHANGED = auto()
    TICKET_CREATED = auto()
    TICKET_VOTED = auto()
    TICKET_ESCALATED = auto()
    TICKET_CLOSED = auto()
    TICKET_REDEEMED = auto()
    TICKET_REFUSED = auto()
    TICKET_OVERRIDDEN = auto()
    TICKET_REVIEWED = auto()


class Act(Struct, frozen=True, kw_only=True):
    """One administrative act. Digests are `sha256:{hex}`; nothing here may be a secret."""

    kind: ActKind
    resource: str
    """The changed resource by name."""
    time: datetime
    before: str = ""
    after: str = ""
    reason: str = ""
    previous_state: str = ""
    state: str = ""
    tool_version: str = ""
    """The tool or its version, for acts about a tool."""
    tool_digest: str = ""
    details: Mapping[str, Any] = {}
    """What was granted or set: texts, whole numbers, booleans, and lists of them. Empty values are left out."""
    subject: str = ""
    """The principal, where the call has no token of this mesh: the subject of an exchanged token."""
    tenant: str = ""
    """The tenant that the act concerns, where no caller with a token says so."""
    ticket: str = ""
    """The ticket by name, for acts about an approval."""
    invocation_id: str = ""
    """The invocation that the act is about, if any."""


class EncodedAct(NamedTuple):
    """An act as the log takes it: its record id and its canonical form."""

    record_id: str
    form: bytes


class ActEncoder:
    """Encodes the acts of one service."""

    def __init__(self, writer: str, scanners: TenantScanners | None = None) -> None:
        """`writer` is the mesh name of the service; the log refuses any other."""
        self._writer, self._scanners = writer, scanners or TenantScanners()

    def encode(self, act: Act) -> EncodedAct:
        """Return the record of an act of the current call."""
        call, record_id = current_call(), new_id()
        form: dict[str, Any] = {
            "record_id": record_id,
            "event_class": act.kind.value,
            "event_time": _timestamp(act.time),
            "writer": self._writer,
            "status": "success",
            "act": self._act_form(act, call),
            "trace_id": call.trace.trace_id if call is not None else "",
            "caller": self._caller_form(act, call),
            "previous_state": act.previous_state,
            "state": act.state,
            "tool_version": act.tool_version[:_MAX_TOOL],
            "tool_digest": act.tool_digest,
            "ticket": act.ticket,
            "invocation_id": act.invocation_id,
        }
        details = canonical({name: value for name, value in act.details.items() if value not in ("", None, [])})
        if len(details) > len(b"{}"):
            form["result_digest"] = digest_bytes(details)
            if len(details) <= _MAX_SUMMARY_BYTES:
                form["result_summary"] = orjson.Fragment(details)
        # Equal to RFC 8785 for ASCII keys and values that are strings, whole numbers and booleans.
        kept = {name: value for name, value in form.items() if value}
        return EncodedAct(record_id, orjson.dumps(kept, option=orjson.OPT_SORT_KEYS))

    def _act_form(self, act: Act, call: Call | None) -> dict[str, str]:
        tenant = call.tenant if call is not None else ""
        form = {
            "resource": act.resource[:_MAX_RESOURCE],
            "before_digest": act.before,
            "after_digest": act.after,
            "reason": self._redact(act.reason, tenant)[:_MAX_REASON],
            "certificate_thumbprint": peer_thumbprint(call) if call is not None else "",
        }
        return {name: value for name, value in form.items() if value}

    def _caller_form(self, act: Act, call: Call | None) -> dict[str, Any]:
        form: dict[str, Any] = {"peer": call.peer} if call is not None else {}
        if call is not None and call.identity is not None:
            form |= _identity_form(call.identity)
            form["session_id"] = self._redact(call.identity.session_id, call.identity.tenant)
        elif act.subject or act.tenant:
            form |= {"subject": act.subject, "tenant": act.tenant}
        return {name: value for name, value in form.items() if value}

    def _redact(self, text: str, tenant: str) -> str:
        return str(self._scanners.of(tenant).text(text).value) if text else ""


def _identity_form(identity: Identity) -> dict[str, Any]:
    return {
        "subject": identity.subject,
        "agent": identity.agent,
        "tenant": identity.tenant,
        "tier": identity.tier if identity.tier in ("user", "agent", "invocation") else "",
        "token_id": identity.token_id,
        "delegation_chain": [_actor_form(*actor) for actor in identity.chain],
        "scopes": sorted(identity.scopes),
        "expire_time": _timestamp(datetime.fromtimestamp(int(identity.expires_at), UTC)),
    }


def _actor_form(subject: str, token_id: str) -> dict[str, str]:
    form = {"subject": subject, "token_id": token_id}
    return {name: value for name, value in form.items() if value}


def _timestamp(time: datetime) -> str:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
