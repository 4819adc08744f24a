"""ReportUpstream: turns what an executor discovered into tools, and keeps the state of the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from libs.common.errors import MeshError, Violation
from libs.common.runtime.clock import Clock
from services.registry.domain.errors import upstream_busy, upstream_not_found
from services.registry.domain.model import Actor
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.upstreams.definition import UnusableDefinitionError, definition_digest, tool_id
from services.registry.domain.upstreams.map_definition import map_definition
from services.registry.domain.upstreams.ports import Upstreams
from services.registry.domain.upstreams.publishing import CHANGED, MISSING, Publisher
from services.registry.domain.upstreams.upstream import (
    DiscoveredTool,
    Discovery,
    Finding,
    ToolState,
    Upstream,
    UpstreamReport,
    UpstreamState,
    UpstreamTool,
)

NEXT_REPORT = timedelta(seconds=30)
# A server that answered another executor within this time is not unavailable.
_ANSWERED_ELSEWHERE = 2 * NEXT_REPORT
_ATTEMPTS = 5
_MAX_FINDINGS = 8


async def apply_report(
    upstream_id: str, report: UpstreamReport, *, upstreams: Upstreams, publisher: Publisher, clock: Clock
) -> timedelta:
    """Apply a report, and return when the next one is due. Raises NOT_FOUND, and SERVICE_UNAVAILABLE while others
    change the upstream or no executor is announced."""
    for _ in range(_ATTEMPTS):
        upstream = await upstreams.get(upstream_id)
        if upstream is None:
            raise upstream_not_found(upstream_id)
        changed = await _apply(upstream, report, publisher, clock.now())
        if changed == upstream or await upstreams.replace(changed):
            return NEXT_REPORT
    raise upstream_busy(upstream_id)


async def _apply(upstream: Upstream, report: UpstreamReport, publisher: Publisher, now: datetime) -> Upstream:
    if report.discovery is None and report.reason:
        return _unavailable(upstream, report, now)
    if report.discovery is None and _answered_just_now(upstream, now):
        return upstream
    answered = replace(
        upstream,
        state=UpstreamState.READY,
        state_reason="",
        last_answer_time=now,
        last_answer_instance=report.instance,
        update_time=now,
    )
    if report.discovery is None or report.generation < upstream.observed_generation:
        return answered
    tools = await reconcile_tools(answered, report.discovery, report.generation, publisher)
    return replace(
        answered,
        server_name=report.discovery.server_name,
        server_version=report.discovery.server_version,
        protocol_version=report.discovery.protocol_version,
        observed_generation=max(upstream.observed_generation, report.generation),
        tools=tools,
    )


def _answered_just_now(upstream: Upstream, now: datetime) -> bool:
    """Return whether one more answer would say nothing new."""
    last = upstream.last_answer_time
    return upstream.state is UpstreamState.READY and last is not None and now - last < _ANSWERED_ELSEWHERE * 0.8


def _unavailable(upstream: Upstream, report: UpstreamReport, now: datetime) -> Upstream:
    elsewhere = upstream.last_answer_instance not in ("", report.instance)
    recent = upstream.last_answer_time is not None and now - upstream.last_answer_time < _ANSWERED_ELSEWHERE
    if upstream.state is UpstreamState.READY and elsewhere and recent:
        return upstream
    same = upstream.state is UpstreamState.UNAVAILABLE and upstream.state_reason == report.reason
    if same and upstream.observed_generation >= report.generation:
        return upstream
    # The generation counts as observed: a failed discovery is its result.
    return replace(
        upstream,
        state=UpstreamState.UNAVAILABLE,
        state_reason=report.reason,
        observed_generation=max(upstream.observed_generation, report.generation),
        update_time=now,
    )


async def reconcile_tools(
    upstream: Upstream, discovery: Discovery, generation: int, publisher: Publisher
) -> tuple[UpstreamTool, ...]:
    """Return every tool of the upstream after a discovery: new ones published, changed ones quarantined, absent ones
    disabled. Each is decided by itself."""
    actor = Actor(upstream.added_by)
    known = {tool.native_name: tool for tool in upstream.tools}
    offered = {tool.native_name: tool for tool in discovery.tools}
    holders = _holders(known, offered)
    tools = []
    for native_name, tool in offered.items():
        holder = holders[tool_id(native_name)]
        if holder != native_name:
            tools.append(_name_taken(native_name, holder))
            continue
        row = known.get(native_name)
        if row is None or (not row.tool_version and await _is_retried(row, tool, generation, upstream)):
            tools.append(await publish_definition(upstream, tool, actor, publisher))
        elif row.tool_version:
            tools.append(await _check_definition(row, tool, actor, publisher))
        else:
            tools.append(row)
    for row in upstream.tools:
        if row.native_name not in offered and row.tool_version:
            await publisher.apply(row.tool_version, MISSING, actor)
            tools.append(replace(row, state=ToolState.MISSING))
    return tuple(sorted(tools, key=lambda row: row.native_name))


async def publish_definition(
    upstream: Upstream, tool: DiscoveredTool, actor: Actor, publisher: Publisher
) -> UpstreamTool:
    """Publish a definition, and return the admitted or refused tool. Raises SERVICE_UNAVAILABLE, after which nothing is
    known about it."""
    if tool.problem or not tool.definition:
        return _refused(tool.native_name, [Violation("", "definition.none", tool.problem or "has no definition")])
    try:
        mapped = await asyncio.to_thread(map_definition, upstream, tool.native_name, tool.definition)
    except UnusableDefinitionError as error:
        return _refused(tool.native_name, error.violations)
    definition = tool.definition.decode()
    try:
        version = await publisher.publish(mapped.manifest, actor)
    except MeshError as error:
        if error.row.retryable:
            raise
        violations = error.violations or (Violation("", error.reason.name.lower(), error.message),)
        row = _refused(tool.native_name, violations, mapped.manifest.mutation_class.value)
        return replace(row, pending_digest=mapped.digest)
    return UpstreamTool(
        tool.native_name,
        ToolState.ADMITTED,
        version,
        mapped.manifest.mutation_class.value,
        notes=mapped.notes,
        accepted_digest=mapped.digest,
        accepted_definition=definition,
        secrets=_secrets_of(mapped.manifest),
    )


def _secrets_of(manifest: Manifest) -> tuple[str, ...]:
    """Return the secrets of an HTTP endpoint, as references."""
    uses = manifest.execution.get("http", {}).get("secrets", ())
    return tuple(dict.fromkeys(str(use["secret"]) for use in uses))


async def _check_definition(
    row: UpstreamTool, tool: DiscoveredTool, actor: Actor, publisher: Publisher
) -> UpstreamTool:
    """Compare the definition of an admitted tool with the accepted one."""
    try:
        found = await asyncio.to_thread(definition_digest, tool.definition)
    except UnusableDefinitionError as error:
        found, definition, findings = "", "", _findings(error.violations)
    else:
        definition, findings = tool.definition.decode(), ()
    if found == row.accepted_digest:
        if row.state is not ToolState.ADMITTED:
            await publisher.lift(row.tool_version, actor)
        return replace(row, state=ToolState.ADMITTED, pending_digest="", pending_definition="", findings=())
    if row.state is ToolState.MISSING:
        await publisher.lift(row.tool_version, actor)
    if row.state is ToolState.QUARANTINED and row.pending_digest == found:
        return row
    await publisher.apply(row.tool_version, CHANGED, actor)
    return replace(
        row, state=ToolState.QUARANTINED, pending_digest=found, pending_definition=definition, findings=findings
    )


async def _is_retried(row: UpstreamTool, tool: DiscoveredTool, generation: int, upstream: Upstream) -> bool:
    """Return whether a refused tool is examined again: after a refresh, or when its definition changed."""
    if generation > upstream.observed_generation:
        return True
    try:
        return await asyncio.to_thread(definition_digest, tool.definition) != row.pending_digest
    except UnusableDefinitionError:
        return False


def _holders(known: Mapping[str, UpstreamTool], offered: Mapping[str, DiscoveredTool]) -> dict[str, str]:
    """Return the native name that holds each tool id: an admitted one before a new one, then by name."""
    holders: dict[str, str] = {}
    admitted = [name for name, row in known.items() if row.tool_version]
    for name in (*sorted(admitted), *sorted(offered)):
        holders.setdefault(tool_id(name), name)
    return holders


def _name_taken(native_name: str, holder: str) -> UpstreamTool:
    message = f"the tool {holder} of the same upstream has the id {tool_id(native_name)}"
    return _refused(native_name, (Violation("tool_id", "name.taken", message),))


def _refused(native_name: str, violations: tuple[Violation, ...] | list[Violation], mutation: str = "") -> UpstreamTool:
    return UpstreamTool(native_name, ToolState.REFUSED, mutation_class=mutation, findings=_findings(violations))


def _findings(violations: tuple[Violation, ...] | list[Violation]) -> tuple[Finding, ...]:
    return tuple(Finding(each.path, each.rule, each.message) for each in violations[:_MAX_FINDINGS])
