"""The errors of the registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.common.errors import MeshError, Reason, Violation
from libs.common.tool_names import ToolName
from services.registry.domain.model import LifecycleState, VersionHead


def tool_not_found(tool: ToolName) -> MeshError:
    return MeshError(Reason.TOOL_NOT_FOUND, metadata={"tool": tool.qualified})


def version_not_found(tool: ToolName, constraint: str) -> MeshError:
    return MeshError(Reason.TOOL_VERSION_NOT_FOUND, metadata={"tool": tool.qualified, "version_constraint": constraint})


def version_past_sunset(head: VersionHead) -> MeshError:
    deprecation = head.standing.deprecation
    successor = deprecation.successor if deprecation else ""
    return MeshError(Reason.TOOL_DEPRECATED, metadata={"version": head.name, "successor": successor})


def version_may_not_run(head: VersionHead) -> MeshError:
    standing = head.standing
    return MeshError(
        Reason.TOOL_UNAVAILABLE,
        metadata={"version": head.name, "state": standing.state.value, "state_reason": standing.state_reason},
    )


def manifest_invalid(violations: Sequence[Violation]) -> MeshError:
    return MeshError(Reason.TOOL_MANIFEST_INVALID, violations=violations)


def no_executor() -> MeshError:
    return MeshError(
        Reason.SERVICE_UNAVAILABLE,
        message="no executor is announced, so the registry cannot tell whether the tool can run; start an executor",
        retry_after=1.0,
    )


def version_conflict(stored: VersionHead) -> MeshError:
    return MeshError(Reason.TOOL_VERSION_CONFLICT, metadata={"version": stored.name, "digest": stored.digest})


def namespace_taken(namespace: str, provider: str) -> MeshError:
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="the namespace belongs to another provider",
        metadata={"namespace": namespace, "provider": provider},
    )


def name_taken(name: ToolName, holder: ToolName) -> MeshError:
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="the name belongs to another tool",
        metadata={"name": name.qualified, "tool": holder.qualified},
    )


def namespace_reserved(namespace: str) -> MeshError:
    return MeshError(
        Reason.PERMISSION_DENIED,
        message="the namespace is reserved for tools that ship with the mesh",
        metadata={"namespace": namespace},
    )


def namespace_not_owned(namespace: str, owner: str) -> MeshError:
    return MeshError(
        Reason.PERMISSION_DENIED,
        message="the namespace has another owner",
        metadata={"namespace": namespace, "owner": owner},
    )


def namespace_owned(namespace: str, owner: str) -> MeshError:
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="the namespace has an owner",
        metadata={"namespace": namespace, "owner": owner},
    )


def namespace_not_found(namespace: str) -> MeshError:
    return MeshError(Reason.NOT_FOUND, metadata={"namespace": namespace})


def alias_is_a_namespace(alias: ToolName) -> MeshError:
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="the alias is spelled like a namespace",
        metadata={"name": alias.qualified, "namespace": alias.tool_id},
    )


def alias_not_found(alias: ToolName) -> MeshError:
    return MeshError(Reason.NOT_FOUND, message="no alias has this name", metadata={"alias": alias.qualified})


def alias_points_elsewhere(alias: ToolName, holder: ToolName) -> MeshError:
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message="the alias points to another tool",
        metadata={"alias": alias.qualified, "tool": holder.qualified},
    )


def alias_outside_namespace(alias: ToolName) -> MeshError:
    return MeshError(
        Reason.INVALID_REQUEST,
        message="an alias moves only between tools of its own namespace",
        metadata={"alias": alias.qualified},
    )


def verb_not_applicable(head: VersionHead, verb: str, state: LifecycleState) -> MeshError:
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message=f"{verb.replace('_', ' ')} does not apply to a version in state {state.value}",
        metadata={"version": head.name, "state": state.value, "verb": str(verb)},
    )


def etag_mismatch(head: VersionHead) -> MeshError:
    return MeshError(Reason.ETAG_MISMATCH, metadata={"version": head.name, "etag": head.standing.etag})


def namespace_changed(namespace: str, etag: str) -> MeshError:
    return MeshError(Reason.ETAG_MISMATCH, metadata={"namespace": namespace, "etag": etag})


def etag_needs_a_version() -> MeshError:
    return MeshError(
        Reason.INVALID_REQUEST,
        violations=[Violation("etag", "etag.version", "applies to one version; name a version or omit the etag")],
    )


def caller_required() -> MeshError:
    return MeshError(
        Reason.INVALID_REQUEST,
        violations=[Violation("usable_only", "caller", "needs a caller; send a token")],
    )


def request_id_reused(request_id: str) -> MeshError:
    return MeshError(Reason.IDEMPOTENCY_CONFLICT, metadata={"request_id": request_id})


def tool_is_revoked(tool: ToolName) -> MeshError:
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message="the tool is revoked; only the operator can reinstate it",
        metadata={"tool": tool.qualified},
    )


def deprecation_invalid(violations: Sequence[Violation]) -> MeshError:
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def grace_not_over(head: VersionHead) -> MeshError:
    deprecation = head.standing.deprecation
    until = deprecation.remove_time.isoformat() if deprecation and deprecation.remove_time else ""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message="the grace period is not over",
        metadata={"version": head.name, "remove_time": until},
    )


def removal_needs_force(head: VersionHead) -> MeshError:
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message="a version in quarantine is retired only by force",
        metadata={"version": head.name, "state": head.standing.state.value},
    )


def usage_unknown() -> MeshError:
    return MeshError(
        Reason.SERVICE_UNAVAILABLE, message="usage is unknown, so the version counts as used", retry_after=1.0
    )


def page_token_invalid() -> MeshError:
    return MeshError(Reason.PAGE_TOKEN_INVALID)


def watch_fell_behind() -> MeshError:
    """The log no longer has the watcher's position. The client reconnects and gets a snapshot."""
    return MeshError(
        Reason.SERVICE_UNAVAILABLE, message="the watch fell too far behind; open it again", retry_after=0.1
    )


def watch_ended() -> MeshError:
    return MeshError(
        Reason.SERVICE_UNAVAILABLE, message="this process is stopping; open the watch again", retry_after=0.1
    )


def upstream_not_found(upstream_id: str) -> MeshError:
    return MeshError(Reason.NOT_FOUND, message="there is no such upstream", metadata={"upstream": upstream_id})


def upstream_exists(upstream_id: str) -> MeshError:
    return MeshError(
        Reason.ALREADY_EXISTS,
        message="another upstream has this id; remove it first, or choose another id",
        metadata={"upstream": upstream_id},
    )


def upstream_invalid(violations: Sequence[Violation]) -> MeshError:
    return MeshError(Reason.INVALID_REQUEST, violations=violations)


def upstream_busy(upstream_id: str) -> MeshError:
    return MeshError(
        Reason.SERVICE_UNAVAILABLE,
        message="others change the upstream at the same time",
        metadata={"upstream": upstream_id},
        retry_after=0.5,
    )


def too_many_upstreams(most: int) -> MeshError:
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message=f"there are {most} upstreams, which is the most; remove one",
        metadata={"limit": str(most)},
    )


def changes_not_pending(upstream_id: str, pending: Mapping[str, str]) -> MeshError:
    """The digests are not those that wait. The violations name those that do."""
    return MeshError(
        Reason.FAILED_PRECONDITION,
        message="a digest is not the one that waits for acceptance; read the upstream again",
        metadata={"upstream": upstream_id},
        violations=[
            Violation("changes", "digest.pending", f"{name[:100]} waits with {digest or 'nothing'}")
            for name, digest in pending.items()
        ],
    )
