"""Conversions of the registry service."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_health_pb2, tool_pb2, tool_trust_pb2, tool_version_pb2
from toolmesh.registry.v1.trust_service_pb2 import ContributionStage

from libs.common.call_context import Call
from libs.common.json.jsonio import parse
from services.registry.convert.manifest import manifest_of, message_of
from services.registry.convert.shared import caller_of, state_of, timestamp
from services.registry.domain.catalog.list_tool_versions import VersionPage
from services.registry.domain.catalog.list_tools import ListedTool, Selection, ToolPage
from services.registry.domain.catalog.watch_tools import (
    Event,
    HealthChanged,
    Heartbeat,
    TrustChanged,
    VersionRemoved,
    VersionUpserted,
)
from services.registry.domain.compatibility.check_compatibility import Compatibility
from services.registry.domain.compatibility.differences import Difference
from services.registry.domain.compatibility.negotiate_schema import Expectations, Negotiation
from services.registry.domain.health.health import VersionHealth
from services.registry.domain.health.ports import VersionHealths
from services.registry.domain.model import Actor, LifecycleState, Standing, Tool, ToolVersion, VersionHead
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.register_tool import Registration
from services.registry.domain.runners.announcement import RunnerSet
from services.registry.domain.runners.need import need_of
from services.registry.domain.trust.ports import TrustScores
from services.registry.domain.trust.tool_trust import ToolTrust, is_known_publisher


def actor_of(call: Call) -> Actor:
    return Actor(call.peer, call.identity.subject if call.identity else "", call.tenant)


def selection_of(request: pb.ListToolsRequest, call: Call) -> Selection:
    caller = caller_of(call) if request.usable_only else None
    return Selection(request.namespace, tuple(request.tags), request.usable_only, caller)


def register_response(
    registration: Registration, runners: RunnerSet, trust: TrustScores, health: VersionHealths
) -> pb.RegisterToolResponse:
    return pb.RegisterToolResponse(
        version=tool_version(registration.version, trust, runners, health),
        created=registration.created,
        warnings=[pb.ScanFinding(path=w.path, rule=w.rule, message=w.message) for w in registration.warnings],
        beside=[tool_version(version, trust, runners, health) for version in registration.beside],
    )


def candidate_of(request: pb.CheckCompatibilityRequest) -> Manifest | str:
    return manifest_of(request.manifest) if request.WhichOneof("candidate") == "manifest" else request.version


def compatibility_response(result: Compatibility) -> pb.CheckCompatibilityResponse:
    return pb.CheckCompatibilityResponse(
        baseline=result.baseline.name if result.baseline else "",
        findings=[_difference(difference) for difference in result.differences],
        smallest_bump=pb.VersionBump.Value(f"VERSION_BUMP_{result.bump.name if result.bump else 'UNSPECIFIED'}"),
        smallest_version=result.smallest_version,
        number_is_legal=result.number_is_legal,
    )


def expectations_of(request: pb.NegotiateSchemaRequest) -> Expectations:
    return Expectations(
        parse(request.input_schema) if request.input_schema else None,
        parse(request.output_schema) if request.output_schema else None,
        bool(request.input_schema),
        bool(request.output_schema),
    )


def negotiation_response(negotiation: Negotiation) -> pb.NegotiateSchemaResponse:
    return pb.NegotiateSchemaResponse(
        match=pb.SchemaMatch.Value(f"SCHEMA_MATCH_{negotiation.match.name}"),
        version=negotiation.head.name,
        digest=negotiation.head.digest,
        missing=[_difference(difference) for difference in negotiation.missing],
    )


def states_of(request: pb.ListToolVersionsRequest) -> frozenset[LifecycleState]:
    prefix = "LIFECYCLE_STATE_"
    names = (tool_version_pb2.LifecycleState.Name(state).removeprefix(prefix) for state in request.states)
    return frozenset(LifecycleState[name] for name in names)


def versions_response(page: VersionPage, trust: TrustScores, health: VersionHealths) -> pb.ListToolVersionsResponse:
    versions = [tool_version(version, trust, None, health) for version in page.versions]
    return pb.ListToolVersionsResponse(versions=versions, next_page_token=page.next_token)


def list_response(
    page: ToolPage, runners: RunnerSet, trust: TrustScores, health: VersionHealths
) -> pb.ListToolsResponse:
    tools = [_listed_tool(item, runners, trust, health) for item in page.tools]
    return pb.ListToolsResponse(tools=tools, next_page_token=page.next_token)


def tool(domain_tool: Tool) -> tool_pb2.Tool:
    return tool_pb2.Tool(
        name=domain_tool.name.resource,
        tool_id=domain_tool.name.tool_id,
        namespace=domain_tool.name.namespace,
        provider=domain_tool.provider,
        title=domain_tool.title,
        latest_version=domain_tool.latest_version,
        aliases=domain_tool.aliases,
        create_time=timestamp(domain_tool.create_time),
        update_time=timestamp(domain_tool.update_time),
    )


def response_expiry(versions: Iterable[ToolVersion | None]) -> float:
    """Return when a response about these versions expires without a change: at the first sunset. Versions that are past
    their sunset or not selectable do not expire."""
    announced = (version.head.standing.deprecation for version in versions if version)
    return min((d.sunset_time.timestamp() for d in announced if d and d.sunset_time), default=math.inf)


def tool_version(
    version: ToolVersion,
    trust: TrustScores | None = None,
    runners: RunnerSet | None = None,
    health: VersionHealths | None = None,
) -> tool_version_pb2.ToolVersion:
    """Convert a version; `trust`, `no_runner` and `health` are set only where the scores, the runners and the health
    are given."""
    head, standing = version.head, version.head.standing
    missing = runners.missing(need_of(version.manifest)) if runners is not None and version.manifest else None
    return tool_version_pb2.ToolVersion(
        name=head.name,
        manifest=message_of(version.manifest) if version.manifest else None,
        digest=head.digest,
        state=state_of(standing.state),
        state_reason=standing.state_reason,
        deprecation=deprecation_of(standing),
        create_time=timestamp(head.create_time),
        update_time=timestamp(standing.update_time),
        etag=standing.etag,
        registered_by=head.registered_by,
        aliases=tool_version_pb2.AliasSet(tool_ids=version.aliases) if version.aliases is not None else None,
        no_runner=missing.message if missing else "",
        trust=version_trust(head, trust) if trust is not None else None,
        health=version_health(health.health_of(version)) if health is not None else None,
    )


def version_health(health: VersionHealth) -> tool_health_pb2.VersionHealth:
    value = tool_health_pb2.ToolHealth.Value(f"TOOL_HEALTH_{health.health.name}")
    return tool_health_pb2.VersionHealth(version=health.name, health=value, reason=health.reason)


def version_trust(head: VersionHead, trust: TrustScores) -> tool_trust_pb2.ToolTrust:
    """Convert the trust in a tool. The registrar of a new version is known before the scores of its tool are."""
    held = trust.trust_in(head.tool)
    known = held.publisher_verified or is_known_publisher(head.registered_by, identity_verified=False)
    return tool_trust(replace(held, publisher_verified=known))


def tool_trust(trust: ToolTrust) -> tool_trust_pb2.ToolTrust:
    return tool_trust_pb2.ToolTrust(
        tool=trust.tool.resource,
        score=trust.score,
        compute_time=timestamp(trust.compute_time) if trust.compute_time else None,
        stage=ContributionStage.Value(f"CONTRIBUTION_STAGE_{trust.stage.name}"),
        publisher_verified=trust.publisher_verified,
        look_alikes=look_alikes(trust),
    )


def look_alikes(trust: ToolTrust) -> list[tool_trust_pb2.LookAlike]:
    return [tool_trust_pb2.LookAlike(name=each.name, kind=each.kind, older=each.older) for each in trust.look_alikes]


def watch_response(event: Event, trust: TrustScores, health: VersionHealths) -> pb.WatchToolsResponse:
    token = event.at.token() if event.at else ""
    if isinstance(event, VersionUpserted):
        return pb.WatchToolsResponse(upserted=tool_version(event.version, trust, None, health), resume_token=token)
    if isinstance(event, TrustChanged):
        trusts = tool_trust_pb2.ToolTrusts(tools=[tool_trust(changed) for changed in event.trusts])
        return pb.WatchToolsResponse(trusts=trusts, resume_token=token)
    if isinstance(event, HealthChanged):
        healths = tool_health_pb2.VersionHealths(versions=map(version_health, event.healths))
        return pb.WatchToolsResponse(healths=healths, resume_token=token)
    if isinstance(event, VersionRemoved):
        return pb.WatchToolsResponse(removed=event.name, resume_token=token)
    if isinstance(event, Heartbeat):
        return pb.WatchToolsResponse(heartbeat=pb.Heartbeat(), resume_token=token)
    return pb.WatchToolsResponse(snapshot_complete=pb.SnapshotComplete(), resume_token=token)


def _difference(difference: Difference) -> pb.CompatibilityFinding:
    kind = pb.ChangeKind.Value(f"CHANGE_KIND_{difference.kind.name}")
    return pb.CompatibilityFinding(path=difference.path, rule=difference.rule, kind=kind, message=difference.message)


def _listed_tool(item: ListedTool, runners: RunnerSet, trust: TrustScores, health: VersionHealths) -> pb.ListedTool:
    version = tool_version(item.version, trust, runners, health) if item.version else None
    return pb.ListedTool(tool=tool(item.tool), version=version)


def deprecation_of(standing: Standing) -> tool_version_pb2.Deprecation | None:
    """Convert the announced end of a version; None if there is none."""
    deprecation = standing.deprecation
    if deprecation is None:
        return None
    return tool_version_pb2.Deprecation(
        deprecate_time=timestamp(deprecation.deprecate_time),
        sunset_time=timestamp(deprecation.sunset_time) if deprecation.sunset_time else None,
        successor=deprecation.successor,
        migration_guide_url=deprecation.migration_guide_url,
        remove_time=timestamp(deprecation.remove_time) if deprecation.remove_time else None,
    )
