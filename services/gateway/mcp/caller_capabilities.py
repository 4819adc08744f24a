"""What a call tells the executor of its client."""

from __future__ import annotations

from toolmesh.executor.v1.executor_service_pb2 import (
    CALLER_CAPABILITY_ELICITATION,
    CALLER_CAPABILITY_ROOTS,
    CALLER_CAPABILITY_SAMPLING,
    CallerCapability,
)

from services.gateway.mcp.context import ClientFacts


def caller_capabilities(client: ClientFacts) -> list[CallerCapability.ValueType]:
    """Return what a client can be asked for."""
    declared = (
        (client.elicitation, CALLER_CAPABILITY_ELICITATION),
        (client.sampling, CALLER_CAPABILITY_SAMPLING),
        (client.roots, CALLER_CAPABILITY_ROOTS),
    )
    return [capability for has, capability in declared if has]
