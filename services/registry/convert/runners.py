"""Conversions of the runner service."""

from __future__ import annotations

from datetime import UTC, timedelta

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import runner_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2

from services.registry.domain.runners.announcement import Announcement, Circuit, CircuitState


def announcement_of(request: pb.AnnounceRunnersRequest) -> Announcement:
    kinds, limits = tool_manifest_pb2.RunnerKind, pb.LimitKind
    return Announcement(
        instance=request.instance,
        process_id=request.process_id,
        runners=frozenset(kinds.Name(kind).removeprefix("RUNNER_KIND_").lower() for kind in request.runners),
        tiers=frozenset(map(_tier, request.sandbox_tiers)),
        packs=frozenset(pack.name for pack in request.packs),
        unkept=frozenset(
            (_tier(each.sandbox_tier), limits.Name(each.limit).removeprefix("LIMIT_KIND_").lower())
            for each in request.unkept_limits
        ),
        circuits=tuple(map(_circuit, request.circuits)),
    )


def _circuit(message: pb.AnnouncedCircuit) -> Circuit:
    state = pb.CircuitState.Name(message.state).removeprefix("CIRCUIT_STATE_").lower()
    return Circuit(message.name, CircuitState(state), message.change_time.ToDatetime(tzinfo=UTC))


def _tier(tier: tool_manifest_pb2.SandboxTier.ValueType) -> str:
    return tool_manifest_pb2.SandboxTier.Name(tier).removeprefix("SANDBOX_TIER_").lower()


def announce_response(lease: timedelta) -> pb.AnnounceRunnersResponse:
    duration = Duration()
    duration.FromTimedelta(lease)
    return pb.AnnounceRunnersResponse(lease=duration)
