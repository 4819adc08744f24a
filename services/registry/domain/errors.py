"""What can go wrong in the registry, named by what happened."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason, Violation
from libs.common.names import ToolName
from services.registry.domain.model import VersionHead


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
        message="the name already leads to another tool",
        metadata={"name": name.qualified, "tool": holder.qualified},
    )


def namespace_reserved(namespace: str) -> MeshError:
    return MeshError(
        Reason.PERMISSION_DENIED,
        message="the namespace is reserved for tools that ship with the mesh",
        metadata={"namespace": namespace},
    )


def page_token_invalid() -> MeshError:
    return MeshError(Reason.PAGE_TOKEN_INVALID)


def watch_fell_behind() -> MeshError:
    """The log no longer reaches back to where the watcher is; it comes again and gets a snapshot."""
    return MeshError(
        Reason.SERVICE_UNAVAILABLE, message="the watch fell too far behind; open it again", retry_after=0.1
    )


def watch_ended() -> MeshError:
    return MeshError(
        Reason.SERVICE_UNAVAILABLE, message="this process is stopping; open the watch again", retry_after=0.1
    )
