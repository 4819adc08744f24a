"""What a tool looks like from outside, given its versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from services.registry.domain.catalog.resolve import latest_for_new_work
from services.registry.domain.model import Tool, ToolVersion, VersionHead
from services.registry.domain.publishing.manifest import Manifest


def with_version(tool: Tool | None, heads: Sequence[VersionHead], added: ToolVersion) -> Tool:
    """Return the tool as it is once a version joined the others. Title and tags are those of the latest version;
    while no version is the latest, those of the highest."""
    manifest, head = added.manifest, added.head
    if manifest is None:
        raise ValueError("a version is added with its manifest")
    versions = [*heads, head]
    newest = latest_for_new_work(versions)
    default = newest or max(versions, key=lambda each: each.version)
    held = tool or Tool(
        manifest.name, manifest.provider, manifest.title, manifest.tags, "", (), head.create_time, head.create_time
    )
    aliases = sorted({*held.aliases, *(alias.tool_id for alias in manifest.aliases)})
    joined = replace(
        held,
        latest_version=str(newest.version) if newest else "",
        aliases=tuple(aliases),
        update_time=head.standing.update_time,
    )
    # A new version changes no other's standing, so the face is either the newcomer or whoever it was before.
    return replace(joined, title=manifest.title, tags=manifest.tags) if default is head else joined


def default_version(heads: Sequence[VersionHead]) -> VersionHead:
    """Return the version that a tool shows of itself: the latest; while none is, the highest."""
    return latest_for_new_work(heads) or max(heads, key=lambda each: each.version)


def with_standing(tool: Tool, heads: Sequence[VersionHead], default: Manifest, now: datetime) -> Tool:
    """Return the tool as it is once versions of it have changed their standing; `face` is the manifest of `face_of`."""
    newest = latest_for_new_work(heads)
    return replace(
        tool,
        latest_version=str(newest.version) if newest else "",
        title=default.title,
        tags=default.tags,
        update_time=now,
    )
