"""Waits until the mesh has tried an upstream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    from toolmesh_sdk._wire.transport import Transport

_PAUSE_SECONDS = 0.2


def wait_observed(transport: Transport, upstream: upb.Upstream, seconds: float) -> upb.Upstream:
    """Return the upstream once its generation is observed, or as it is when the time is over."""
    from toolmesh.registry.v1 import upstream_service_pb2 as pb
    from toolmesh.registry.v1.upstream_service_pb2_grpc import UpstreamServiceStub

    stub, until = UpstreamServiceStub(transport.channel), time.monotonic() + seconds
    request = pb.GetUpstreamRequest(name=upstream.name)
    while True:
        current: upb.Upstream = transport.unary(stub.GetUpstream, request, None, repeatable=True).upstream
        if current.observed_generation >= upstream.generation or time.monotonic() > until:
            return current
        time.sleep(_PAUSE_SECONDS)
