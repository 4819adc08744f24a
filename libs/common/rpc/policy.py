"""Policy rows: callers, default deadline and idempotency of each method. A method without a row is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """How a peer may call: on its own authority, or only on behalf of a caller whose token holds the scopes."""

    needs_caller: bool
    scopes: frozenset[str] = frozenset()
    tenants: bool = True
    """False if callers of a tenant are refused, because the method concerns all tenants."""


AS_PEER = Access(needs_caller=False)


def for_caller(*scopes: str, tenants: bool = True) -> Access:
    """Return access on behalf of a caller with these scopes; without `tenants`, only a caller outside of any tenant."""
    return Access(needs_caller=True, scopes=frozenset(scopes), tenants=tenants)


@dataclass(frozen=True, slots=True)
class Row:
    """The policy of one method."""

    allow: Mapping[str, Access]
    """Mesh names that may call it; all others are refused."""
    deadline: float | None
    """Default deadline in seconds; None only for streams that stay open."""
    idempotent: bool
    """True if repeating the call has no further effect."""


ANY_PEER = "*"
Policy = Mapping[str, Row]

# Methods that every server has.
PLATFORM: Policy = {
    "/grpc.health.v1.Health/Check": Row({ANY_PEER: AS_PEER}, deadline=2.0, idempotent=True),
    "/grpc.health.v1.Health/Watch": Row({ANY_PEER: AS_PEER}, deadline=None, idempotent=True),
    "/grpc.health.v1.Health/List": Row({ANY_PEER: AS_PEER}, deadline=2.0, idempotent=True),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Row(
        {ANY_PEER: AS_PEER}, deadline=None, idempotent=True
    ),
}
