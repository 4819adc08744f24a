"""The administrative acts of the registry: what the audit log records of versions, namespaces and trust."""

from __future__ import annotations

from datetime import datetime

from msgspec import to_builtins

from libs.audit_client.act import Act, ActKind
from libs.common.json.canonical import digest
from libs.common.tool_names import ToolName
from services.registry.domain.lifecycle.transitions import MOVE_ALIAS, REGISTER, Transition
from services.registry.domain.model import VersionHead
from services.registry.domain.namespaces.ownership import Namespace
from services.registry.domain.trust.facts import Audit, Fact
from services.registry.domain.trust.stages import StageChange
from services.registry.domain.upstreams.upstream import Upstream

_KINDS = {REGISTER: ActKind.TOOL_DECLARED, MOVE_ALIAS: ActKind.TOOL_ALIAS_MOVED}


def version_changed(head: VersionHead, transition: Transition) -> Act:
    """Return the act of a transition: a registration, a step of the life cycle, or a moved alias."""
    return Act(
        kind=_KINDS.get(transition.verb, ActKind.TOOL_STATE_CHANGED),
        resource=transition.name,
        time=transition.time,
        before="" if transition.verb == REGISTER else head.digest,
        after=head.digest,
        reason=transition.reason,
        previous_state=transition.from_state.value if transition.from_state is not None else "",
        state=transition.to_state.value,
        tool_version=transition.name,
        tool_digest=head.digest,
        details={"verb": transition.verb, "actor": transition.actor, "request_id": transition.request_id},
    )


def namespace_changed(before: Namespace | None, after: Namespace, now: datetime) -> Act:
    """Return the act that claimed, transferred or shared a namespace."""
    return Act(
        kind=ActKind.NAMESPACE_CHANGED,
        resource=f"namespaces/{after.namespace}",
        time=now,
        before=_digest(before) if before is not None else "",
        after=_digest(after),
        details=_shown(after) | {"previous_owner": before.owner if before is not None else ""},
    )


def upstream_changed(upstream: Upstream, verb: str, reason: str = "") -> Act:
    """Return the act that added, refreshed, accepted or removed an upstream. Its endpoint is named by a digest."""
    accepted = sorted(f"{tool.native_name}={tool.accepted_digest}" for tool in upstream.tools if tool.accepted_digest)
    return Act(
        kind=ActKind.UPSTREAM_CHANGED,
        resource=upstream.name,
        time=upstream.update_time,
        after=digest(to_builtins(upstream.endpoint)),
        reason=reason,
        state=upstream.state.value,
        details={"verb": verb, "accepted": digest(accepted), "revision": upstream.revision},
    )


def trust_revoked(tool: ToolName, reason: str, now: datetime) -> Act:
    """Return the act that revoked a tool."""
    return _trust_changed(tool, now, reason=reason, previous_state="trusted", state="revoked")


def trust_reinstated(tool: ToolName, now: datetime) -> Act:
    """Return the act that reinstated a revoked tool. The reason is with the versions that it released."""
    return _trust_changed(tool, now, previous_state="revoked", state="trusted")


def stage_moved(change: StageChange) -> Act:
    """Return the act that promoted or demoted a tool."""
    return _trust_changed(
        change.tool,
        change.time,
        reason=change.reason,
        previous_state=change.before.value,
        state=change.after.value,
    )


def fact_recorded(fact: Fact, fact_id: str) -> Act:
    """Return the act that recorded a security audit or a verification of a version."""
    kind = "security_audit" if isinstance(fact, Audit) else "verification"
    name = fact.tool.version(fact.version)
    return Act(
        kind=ActKind.TOOL_TRUST_CHANGED,
        resource=name,
        time=fact.time,
        tool_version=name,
        details={"fact": kind, "fact_id": fact_id, "passed": fact.passed},
    )


def _trust_changed(tool: ToolName, now: datetime, *, previous_state: str, state: str, reason: str = "") -> Act:
    name = f"tools/{tool.qualified}"
    return Act(
        kind=ActKind.TOOL_TRUST_CHANGED,
        resource=name,
        time=now,
        reason=reason,
        previous_state=previous_state,
        state=state,
        tool_version=name,
    )


def _shown(namespace: Namespace) -> dict[str, object]:
    return {
        "owner": namespace.owner,
        "provider": namespace.provider,
        "delegates": sorted(namespace.delegates),
        "revision": namespace.revision,
    }


def _digest(namespace: Namespace) -> str:
    return digest(_shown(namespace))
