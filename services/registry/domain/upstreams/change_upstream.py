"""AddUpstream, RefreshUpstream, AcceptChanges and RemoveUpstream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from libs.common.errors import Violation
from libs.common.runtime.clock import Clock
from services.registry.domain.errors import (
    changes_not_pending,
    too_many_upstreams,
    upstream_busy,
    upstream_exists,
    upstream_invalid,
    upstream_not_found,
)
from services.registry.domain.model import Actor
from services.registry.domain.namespaces.namespaces import claim_namespace
from services.registry.domain.ports import Catalogue
from services.registry.domain.upstreams.apply_report import publish_definition
from services.registry.domain.upstreams.endpoint_rules import endpoint_violations
from services.registry.domain.upstreams.ports import Upstreams
from services.registry.domain.upstreams.publishing import REMOVED, Publisher
from services.registry.domain.upstreams.upstream import (
    DiscoveredTool,
    Endpoint,
    Overlay,
    ToolState,
    Upstream,
    UpstreamTool,
)

MAX_UPSTREAMS = 500
_ATTEMPTS = 5


async def add_upstream(
    upstream_id: str,
    endpoint: Endpoint,
    overlays: tuple[Overlay, ...],
    actor: Actor,
    *,
    upstreams: Upstreams,
    catalogue: Catalogue,
    clock: Clock,
    slow_call_time: str = "",
) -> Upstream:
    """Add an upstream, or return the stored one if it is the same."""
    if violations := [*endpoint_violations(endpoint), *_overlay_violations(overlays)]:
        raise upstream_invalid(violations)
    if len(await upstreams.revisions()) >= MAX_UPSTREAMS:
        raise too_many_upstreams(MAX_UPSTREAMS)
    # From now on no other publisher can register tools that run there.
    await claim_namespace(upstream_id, actor.recorded_name, upstream_id, actor, catalogue=catalogue, clock=clock)
    now = clock.now()
    added = Upstream(upstream_id, endpoint, actor.recorded_name, now, now, overlays, slow_call_time=slow_call_time)
    if await upstreams.add(added):
        return added
    stored = await _require(upstream_id, upstreams)
    if (stored.endpoint, stored.overlays, stored.slow_call_time) != (endpoint, overlays, slow_call_time):
        raise upstream_exists(upstream_id)
    return stored


async def refresh_upstream(upstream_id: str, *, upstreams: Upstreams, clock: Clock) -> Upstream:
    """Ask for a new discovery, and return the upstream."""
    for _ in range(_ATTEMPTS):
        stored = await _require(upstream_id, upstreams)
        refreshed = replace(stored, generation=stored.generation + 1, update_time=clock.now())
        if await upstreams.replace(refreshed, act="refresh"):
            return refreshed
    raise upstream_busy(upstream_id)


async def accept_changes(
    upstream_id: str, digests: Mapping[str, str], reason: str, *, upstreams: Upstreams, publisher: Publisher
) -> Upstream:
    """Publish the definitions with these digests, by native name, each as a new version of its tool."""
    for _ in range(_ATTEMPTS):
        stored = await _require(upstream_id, upstreams)
        rows = {row.native_name: row for row in stored.tools}
        wrong = [name for name, digest in digests.items() if not _is_acceptable(rows.get(name), digest)]
        if wrong:
            raise changes_not_pending(upstream_id, {name: _pending(rows.get(name)) for name in wrong})
        actor = Actor(stored.added_by)
        for name, digest in digests.items():
            rows[name] = await _accept(stored, rows[name], digest, actor, publisher)
        accepted = replace(stored, tools=tuple(rows.values()), update_time=publisher.clock.now())
        if await upstreams.replace(accepted, act="accept", reason=reason):
            return accepted
    raise upstream_busy(upstream_id)


async def remove_upstream(upstream_id: str, *, upstreams: Upstreams, publisher: Publisher) -> None:
    """Delete an upstream and disable its tools."""
    stored = await upstreams.get(upstream_id)
    if stored is None:
        return
    for row in stored.tools:
        if row.tool_version:
            await publisher.apply(row.tool_version, REMOVED, Actor(stored.added_by))
    await upstreams.remove(stored)


async def _accept(
    upstream: Upstream, row: UpstreamTool, digest: str, actor: Actor, publisher: Publisher
) -> UpstreamTool:
    if row.accepted_digest == digest:
        return row
    tool = DiscoveredTool(row.native_name, row.pending_definition.encode())
    published = await publish_definition(upstream, tool, actor, publisher)
    if published.state is ToolState.ADMITTED:
        return published
    # The former version stays quarantined, and the findings say why the new one was refused.
    return replace(row, findings=published.findings)


def _is_acceptable(row: UpstreamTool | None, digest: str) -> bool:
    if row is None:
        return False
    waits = row.state is ToolState.QUARANTINED and row.pending_digest == digest
    return waits or (row.state is ToolState.ADMITTED and row.accepted_digest == digest)


def _pending(row: UpstreamTool | None) -> str:
    return row.pending_digest if row is not None and row.state is ToolState.QUARANTINED else ""


async def _require(upstream_id: str, upstreams: Upstreams) -> Upstream:
    upstream = await upstreams.get(upstream_id)
    if upstream is None:
        raise upstream_not_found(upstream_id)
    return upstream


def _overlay_violations(overlays: tuple[Overlay, ...]) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, overlay in enumerate(overlays):
        if overlay.native_name in seen:
            yield Violation(f"overlays[{index}]", "overlay.unique", "names a tool for the second time")
        seen.add(overlay.native_name)
