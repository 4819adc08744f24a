"""Conversions of the runner service."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import runner_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2

from services.registry.domain.runners.announcement import Announcement


def announcement_of(request: pb.AnnounceRunnersRequest) -> Announcement:
    kinds, tiers = tool_manifest_pb2.RunnerKind, tool_manifest_pb2.SandboxTier
    return Announcement(
        instance=request.instance,
        process_id=request.process_id,
        runners=frozenset(kinds.Name(kind).removeprefix("RUNNER_KIND_").lower() for kind in request.runners),
        tiers=frozenset(tiers.Name(tier).removeprefix("SANDBOX_TIER_").lower() for tier in request.sandbox_tiers),
        packs=frozenset(pack.name for pack in request.packs),
    )


def announce_response(lease: timedelta) -> pb.AnnounceRunnersResponse:
    duration = Duration()
    duration.FromTimedelta(lease)
    return pb.AnnounceRunnersResponse(lease=duration)
