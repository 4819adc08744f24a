"""Converts database rows to domain objects and back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from libs.common.json.jsonio import parse_object
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.tables import tool_versions
from services.registry.domain.lifecycle.transitions import Transition
from services.registry.domain.model import Deprecation, LifecycleState, Standing, Tool, VersionHead
from services.registry.domain.publishing.manifest import Manifest

# The columns of a version head, without the manifest.
IMMUTABLE = [
    tool_versions.c[name]
    for name in ("tool", "version", "digest", "size", "create_time", "registered_by")
]  # fmt: skip
STANDING = ("state", "state_reason", "deprecation", "update_time", "sequence", "beneath")
HEAD = [*IMMUTABLE, *(tool_versions.c[name] for name in STANDING)]


def tool_of(row: Any) -> Tool:
    return Tool(
        name=ToolName.parse(row.name),
        provider=row.provider,
        title=row.title,
        tags=tuple(row.tags),
        latest_version=row.latest_version,
        aliases=tuple(row.aliases),
        create_time=row.create_time,
        update_time=row.update_time,
    )


def head_of(row: Any) -> VersionHead:
    return VersionHead(
        tool=ToolName.parse(row.tool),
        version=Version.parse(row.version),
        digest=row.digest,
        size=row.size,
        create_time=row.create_time,
        registered_by=row.registered_by,
        standing=_standing(row),
    )


def manifest_of(document: bytes) -> Manifest:
    return Manifest(parse_object(document))


def version_without_build(version: Version) -> str:
    """Return a version without build metadata."""
    return str(version).partition("+")[0]


def deprecation_row(deprecation: Deprecation | None) -> dict[str, Any] | None:
    if deprecation is None:
        return None
    sunset = deprecation.sunset_time
    return {
        "deprecate_time": deprecation.deprecate_time.isoformat(),
        "sunset_time": sunset.isoformat() if sunset else None,
        "successor": deprecation.successor,
        "migration_guide_url": deprecation.migration_guide_url,
        "remove_time": deprecation.remove_time.isoformat() if deprecation.remove_time else None,
    }


def transition_row(transition: Transition) -> dict[str, Any]:
    before = transition.from_state
    return {
        "sequence": transition.sequence,
        "tool": transition.tool.qualified,
        "version": transition.version,
        "verb": transition.verb,
        "from_state": before.value if before else "",
        "to_state": transition.to_state.value,
        "actor": transition.actor,
        "through": transition.through,
        "reason": transition.reason,
        "request_id": transition.request_id,
        "time": transition.time,
    }


def transition_of(row: Any) -> Transition:
    return Transition(
        sequence=row.sequence,
        tool=ToolName.parse(row.tool),
        version=row.version,
        verb=row.verb,
        from_state=LifecycleState(row.from_state) if row.from_state else None,
        to_state=LifecycleState(row.to_state),
        actor=row.actor,
        through=row.through,
        reason=row.reason,
        time=row.time,
        request_id=row.request_id,
    )


def _standing(row: Any) -> Standing:
    return Standing(
        state=LifecycleState(row.state),
        update_time=row.update_time,
        sequence=row.sequence,
        state_reason=row.state_reason,
        deprecation=_deprecation(row.deprecation) if row.deprecation else None,
        beneath=tuple(LifecycleState(state) for state in row.beneath),
    )


def _deprecation(stored: dict[str, Any]) -> Deprecation:
    sunset, remove = stored["sunset_time"], stored.get("remove_time")
    return Deprecation(
        deprecate_time=datetime.fromisoformat(stored["deprecate_time"]),
        sunset_time=datetime.fromisoformat(sunset) if sunset else None,
        successor=stored["successor"],
        migration_guide_url=stored["migration_guide_url"],
        remove_time=datetime.fromisoformat(remove) if remove else None,
    )
