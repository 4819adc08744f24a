"""AddUpstream, RefreshUpstream, AcceptChanges and RemoveUpstream."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

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
from services.registry.domain.upstreams.ports import Upstreams
from services.registry.domain.upstreams.publishing import REMOVED, Publisher
from services.registry.domain.upstreams.upstream import (
    DiscoveredTool,
    Endpoint,
    GrpcEndpoint,
    HttpEndpoint,
    OpenApiEndpoint,
    Overlay,
    StdioEndpoint,
    ToolState,
    Upstream,
    UpstreamTool,
)

MAX_UPSTREAMS = 500
_ATTEMPTS = 5
# What a sandbox makes itself, or must never see.
_RESERVED_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/tmp", "/etc")  # noqa: S108


async def add_upstream(
    upstream_id: str,
    endpoint: Endpoint,
    overlays: tuple[Overlay, ...],
    actor: Actor,
    *,
    upstreams: Upstreams,
    catalogue: Catalogue,
    clock: Clock,
) -> Upstream:
    """Add an upstream, or return the stored one if it is the same."""
    if violations := [*_endpoint_violations(endpoint), *_overlay_violations(overlays)]:
        raise upstream_invalid(violations)
    if len(await upstreams.revisions()) >= MAX_UPSTREAMS:
        raise too_many_upstreams(MAX_UPSTREAMS)
    # From now on no other publisher can register tools that run there.
    await claim_namespace(upstream_id, actor.recorded_name, upstream_id, actor, catalogue=catalogue, clock=clock)
    now = clock.now()
    added = Upstream(upstream_id, endpoint, actor.recorded_name, now, now, overlays)
    if await upstreams.add(added):
        return added
    stored = await _require(upstream_id, upstreams)
    if (stored.endpoint, stored.overlays) != (endpoint, overlays):
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


def _endpoint_violations(endpoint: Endpoint) -> Iterator[Violation]:
    if isinstance(endpoint, HttpEndpoint):
        yield from _url_violations("endpoint.mcp_http.url", endpoint.url)
    elif isinstance(endpoint, OpenApiEndpoint):
        yield from _openapi_violations(endpoint)
    elif isinstance(endpoint, GrpcEndpoint):
        yield from _grpc_violations(endpoint)
    else:
        yield from _stdio_violations(endpoint)


def _openapi_violations(endpoint: OpenApiEndpoint) -> Iterator[Violation]:
    for path, url in (("endpoint.openapi.url", endpoint.url), ("endpoint.openapi.server", endpoint.server)):
        if url:
            yield from _url_violations(path, url)
    if len({scheme for scheme, _ in endpoint.secrets}) < len(endpoint.secrets):
        yield Violation("endpoint.openapi.secrets", "secrets.unique", "names a security scheme for the second time")


def _grpc_violations(endpoint: GrpcEndpoint) -> Iterator[Violation]:
    if not 0 < int(endpoint.address.rpartition(":")[2]) < 65536:
        yield Violation("endpoint.grpc.address", "address.port", "has no usable port")
    if endpoint.plaintext and (endpoint.ca_file or endpoint.certificate_file):
        yield Violation("endpoint.grpc.plaintext", "address.plaintext", "excludes the certificates of TLS")
    if endpoint.plaintext and endpoint.secrets:
        yield Violation("endpoint.grpc.secrets", "secrets.plaintext", "are not sent without TLS")
    if len({each.key for each in endpoint.secrets}) < len(endpoint.secrets):
        yield Violation("endpoint.grpc.secrets", "secrets.unique", "names a key for the second time")


def _url_violations(path: str, url: str) -> Iterator[Violation]:
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            yield Violation(path, "url.host", "has no host or no usable port")
    except ValueError:
        yield Violation(path, "url.form", "is not a URL")


def _stdio_violations(endpoint: StdioEndpoint) -> Iterator[Violation]:
    texts = (*endpoint.command, *endpoint.environment.values())
    if any("\0" in text for text in texts):
        yield Violation("endpoint.mcp_stdio", "text.no_null", "holds the null character")
    if not endpoint.command[0].startswith("/"):
        yield Violation("endpoint.mcp_stdio.command[0]", "command.absolute", "is not an absolute path")
    for index, mount in enumerate(endpoint.mounts):
        path = f"endpoint.mcp_stdio.mounts[{index}].path"
        if mount.path != posixpath.normpath(mount.path):
            yield Violation(path, "mount.normal", "is not in its shortest form")
        elif mount.path == "/" or any(_is_within(mount.path, folder) for folder in _RESERVED_FOLDERS):
            yield Violation(path, "mount.reserved", "is a folder that a sandbox makes itself")


def _is_within(path: str, folder: str) -> bool:
    return path == folder or (path.startswith(folder + "/") and folder != "/tmp" and folder != "/run")  # noqa: S108


def _overlay_violations(overlays: tuple[Overlay, ...]) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, overlay in enumerate(overlays):
        if overlay.native_name in seen:
            yield Violation(f"overlays[{index}]", "overlay.unique", "names a tool for the second time")
        seen.add(overlay.native_name)
