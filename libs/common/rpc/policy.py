"""Policy rows: callers, tenancy, default deadline and idempotency of each method. A method without a row is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from libs.common.auth.peers import EDGE


class Tenancy(StrEnum):
    """What a caller whose token belongs to a tenant reaches through a method."""

    OWN = "own"
    """Only what belongs to the caller's tenant. The domain of the service enforces it."""
    SHARED = "shared"
    """The same for all tenants by design, such as the catalogue of tools."""
    MESH_WIDE = "mesh_wide"
    """Nothing: the method concerns all tenants, so the chain refuses callers of a tenant."""
    NO_CALLER = "no_caller"
    """Nothing: peers call it for themselves, without a caller's token."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a peer may call: on its own authority, or only on behalf of a caller whose token holds the scopes."""

    needs_caller: bool
    scopes: frozenset[str] = frozenset()


AS_PEER = Access(needs_caller=False)


def for_caller(*scopes: str) -> Access:
    """Return access on behalf of a caller with these scopes."""
    return Access(needs_caller=True, scopes=frozenset(scopes))


@dataclass(frozen=True, slots=True)
class Row:
    """The policy of one method."""

    allow: Mapping[str, Access]
    """Mesh names that may call it; all others are refused."""
    deadline: float | None
    """Default deadline in seconds; None only for streams that stay open."""
    idempotent: bool
    """True if repeating the call has no further effect."""
    tenancy: Tenancy | None = None
    """What callers of a tenant reach. None refuses them, and `tests/contract` refuses a service's row without it."""

    @property
    def admits_tenants(self) -> bool:
        """Whether callers of a tenant may call it at all."""
        return self.tenancy in (Tenancy.OWN, Tenancy.SHARED)


ANY_PEER = "*"
Policy = Mapping[str, Row]

# Methods that every server has.
_ANYONE = {ANY_PEER: AS_PEER}
PLATFORM: Policy = {
    "/grpc.health.v1.Health/Check": Row(_ANYONE, deadline=2.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    "/grpc.health.v1.Health/Watch": Row(_ANYONE, deadline=None, idempotent=True, tenancy=Tenancy.NO_CALLER),
    "/grpc.health.v1.Health/List": Row(_ANYONE, deadline=2.0, idempotent=True, tenancy=Tenancy.NO_CALLER),
    **{
        # The edge asks for a caller with a valid token, to whom the contract is shown.
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo": Row(
            _ANYONE | {EDGE: for_caller()}, deadline=None, idempotent=True, tenancy=Tenancy.SHARED
        )
        for version in ("v1", "v1alpha")
    },
}
