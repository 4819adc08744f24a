"""The port of upstreams that are asked from time to time: documents and servers that describe themselves."""

from __future__ import annotations

from typing import Protocol

from toolmesh.registry.v1 import upstream_service_pb2 as pb

MAX_DISCOVERY_BYTES = 3_600_000
_LEFT_OUT = "all definitions of an upstream together are larger than 3600000 bytes; select fewer"


class Source(Protocol):
    """One upstream."""

    poll_seconds: float

    async def discover(self) -> pb.Discovery:
        """Return what the upstream offers. Raises ServerLostError and TimeoutError."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def bounded_tools(tools: list[pb.DiscoveredTool]) -> list[pb.DiscoveredTool]:
    """Return the tools; those beyond what one report holds without their definition and with the reason."""
    left, fitting = MAX_DISCOVERY_BYTES, []
    for tool in tools:
        left -= len(tool.definition)
        fitting.append(tool if left >= 0 else pb.DiscoveredTool(native_name=tool.native_name, problem=_LEFT_OUT))
    return fitting
