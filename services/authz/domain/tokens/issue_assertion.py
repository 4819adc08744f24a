"""IssueAssertion: signs a statement about the caller for one authorization server outside the mesh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from libs.common.auth.identity import Identity
from libs.common.errors import Violation
from libs.common.ids import new_id
from libs.common.runtime.clock import Clock
from services.authz.domain.errors import grant_refused, parent_expired
from services.authz.domain.ports import KeyRing

LIFETIME = 60


@dataclass(frozen=True)
class IssueAssertion:
    """Signs who the caller is, and nothing that the caller may do. It is no token of the mesh, and in no ledger."""

    keys: KeyRing
    clock: Clock
    issuer: str
    audience: str
    """Of the mesh itself, which no assertion has."""

    async def execute(self, caller: Identity, audience: str) -> str:
        """Return the assertion. Raises INVALID_REQUEST for the audience of the mesh or its issuer."""
        if audience in (self.audience, self.issuer):
            raise grant_refused([Violation("audience", "assertion.audience", "is this mesh")])
        now = int(self.clock.now().timestamp())
        end = min(now + LIFETIME, int(caller.expires_at))
        if end <= now:
            raise parent_expired()
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": caller.subject,
            "aud": audience,
            "iat": now,
            "exp": end,
            "jti": new_id(),
        }
        if caller.tenant:
            claims["tenant"] = caller.tenant
        if actor := _actor(caller):
            claims["act"] = actor
        return await (await self.keys.active()).sign(claims)


def _actor(caller: Identity) -> dict[str, Any]:
    """Return the agents that act for the subject, the present one outermost, as RFC 8693 nests them."""
    agents = [actor for actor, _ in caller.chain if actor != caller.subject]
    if caller.agent and agents[-1:] != [caller.agent]:
        agents.append(caller.agent)
    return _nested(agents)


def _nested(agents: Iterable[str]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for agent in agents:
        nested = {"sub": agent, **({"act": nested} if nested else {})}
    return nested
