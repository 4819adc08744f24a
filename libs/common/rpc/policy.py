"""Policy rows: who may call a method, in how much time, and whether a retry is safe. A method without a row is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """How a peer may call: on its own authority, or only on behalf of a caller whose token holds the scopes."""

    needs_caller: bool
    scopes: frozenset[str] = frozenset()
    tenants: bool = True
    """False if callers that belong to a tenant are refused: what the method does concerns all of them."""


AS_PEER = Access(needs_caller=False)


def for_caller(*scopes: str, tenants: bool = True) -> Access:
    """Access on behalf of a caller whose token holds all of these scopes; without `tenants` only if it belongs to none."""
    return Access(needs_caller=True, scopes=frozenset(scopes), tenants=tenants)


@dataclass(frozen=True, slots=True)
class Row:
    """The policy of one method."""

    allow: Mapping[str, Access]
    """Mesh names that may call it; everyone else is refused."""
    deadline: float | None
    """Seconds a call may take when the caller names no deadline; None only for streams that stay open."""
    idempotent: bool
    """True if repeating the call has no further effect."""


ANY_PEER = "*"
Policy = Mapping[str, Row]

# Methods of the platform itself, served beside every service's own.
PLATFORM: Policy = {
    "/grpc.health.v1.Health/Check": Row({ANY_PEER: AS_PEER}, deadline=2.0, idempotent=True),
    "/grpc.health.v1.Health/Watch": Row({ANY_PEER: AS_PEER}, deadline=None, idempotent=True),
    "/grpc.health.v1.Health/List": Row({ANY_PEER: AS_PEER}, deadline=2.0, idempotent=True),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Row(
        {ANY_PEER: AS_PEER}, deadline=None, idempotent=True
    ),
}
