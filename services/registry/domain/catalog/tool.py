"""Derives the attributes of a tool from its versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from services.registry.domain.catalog.resolve import latest_for_new_work
from services.registry.domain.model import Tool, ToolVersion, VersionHead
from services.registry.domain.publishing.manifest import Manifest


def with_version(tool: Tool | None, heads: Sequence[VersionHead], added: ToolVersion) -> Tool:
    """Return the tool after a version was added. Title and tags come from the latest version, or from the highest if
    there is no latest."""
    manifest, head = added.manifest, added.head
    if manifest is None:
        raise ValueError("a version is added with its manifest")
    versions = [*heads, head]
    newest = latest_for_new_work(versions)
    default = newest or max(versions, key=lambda version: version.version)
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
    # A new version does not change the standing of others, so the default is either the new version or the same as
    # before.
    return replace(joined, title=manifest.title, tags=manifest.tags) if default is head else joined


def default_version(heads: Sequence[VersionHead]) -> VersionHead:
    """Return the version that a tool's title and tags come from: the latest, or the highest if there is no latest."""
    return latest_for_new_work(heads) or max(heads, key=lambda head: head.version)


def with_standing(tool: Tool, heads: Sequence[VersionHead], default: Manifest, now: datetime) -> Tool:
    """Return the tool after its versions changed their standing. `default` is the manifest of `default_version`."""
    newest = latest_for_new_work(heads)
    return replace(
        tool,
        latest_version=str(newest.version) if newest else "",
        title=default.title,
        tags=default.tags,
        update_time=now,
    )
