"""The identity and the authority of a caller whose token was verified."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from libs.common.auth.authority import ArgumentConstraint, Authority, Budget, Grant

__all__ = ["Ancestor", "ArgumentConstraint", "Authority", "Budget", "Grant", "Identity", "TokenLineage", "lineage_of"]


@dataclass(frozen=True, slots=True)
class TokenLineage:
    """What revokes a token: its own id, key and holders, and those of its ancestors."""

    marks: frozenset[str] = frozenset()
    """`token:{id}` and `key:{id}` of the token and of each ancestor."""
    holders: tuple[tuple[str, float], ...] = ()
    """Subjects and agents, each with when their token was made."""
    tenant: str = ""
    """The tenant of the token, which all of its ancestors share."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A token that another one was derived from."""

    actor: str
    """Its holder: the agent, or the subject itself."""
    token_id: str
    key_id: str
    """The key that signed it."""
    issued_at: float
    authority: Authority


@dataclass(frozen=True, slots=True)
class Identity:
    """The verified content of a capability token."""

    subject: str
    token_id: str
    expires_at: float
    """When it ends, in seconds since the epoch."""
    tier: str = "user"
    agent: str = ""
    tenant: str = ""
    scopes: frozenset[str] = frozenset()
    tools: tuple[Grant, ...] = ()
    groups: tuple[str, ...] = ()
    trust_level: int = 0
    chain: tuple[tuple[str, str], ...] = ()
    """Actor and token id of each delegation, the originator first."""
    session_id: str = ""
    claims: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    audiences: tuple[str, ...] = ()
    not_before: float = 0.0
    issued_at: float = 0.0
    resources: tuple[str, ...] = ()
    """Patterns of the resources that it is confined to; empty means no confinement."""
    argument_constraints: tuple[ArgumentConstraint, ...] = ()
    budget: Budget = Budget()
    depth: int = 0
    """How often it may still be passed on."""
    confirmation: str = ""
    """What its holder must prove: `jkt:{thumbprint}`, `x5t#S256:{thumbprint}`, or empty for a bearer token."""
    key_id: str = ""
    """The key that signed it."""
    lineage: tuple[Ancestor, ...] = ()
    """The tokens it was derived from, the originator's first; each was checked to be a subset of the one before."""
    token_lineage: TokenLineage = field(default=TokenLineage(), repr=False, compare=False)
    """What revokes it."""

    @property
    def actor(self) -> str:
        """The holder of the token: the agent, or the subject itself."""
        return self.agent or self.subject

    @property
    def kind(self) -> str:
        """The kind of the caller for policy: `agent`, `service` or `user`.

        The tier of an invocation token says nothing about its maker; the beginning of its chain does.
        """
        if self.agent or self.tier == "agent":
            return "agent"
        began = self.lineage[0].authority.tier if self.lineage else self.tier
        return "service" if began == "service" else "user"

    @property
    def root_token_id(self) -> str:
        """The token at the beginning of the chain; its own id for a user's own token."""
        return self.lineage[0].token_id if self.lineage else self.token_id

    @property
    def authority(self) -> Authority:
        """The authority that a derived token must not exceed."""
        return Authority(
            subject=self.subject,
            tier=self.tier,
            agent=self.agent,
            tools=self.tools,
            scopes=self.scopes,
            resources=self.resources,
            argument_constraints=self.argument_constraints,
            budget=self.budget,
            depth=self.depth,
            audiences=self.audiences,
            not_before=self.not_before,
            expires_at=self.expires_at,
            tenant=self.tenant,
            trust_level=self.trust_level,
            groups=self.groups,
            session_id=self.session_id,
            confirmation=self.confirmation,
        )


def lineage_of(identity: Identity) -> TokenLineage:
    """Return what revokes a token. Computed once for each token and kept with it."""
    marks = {f"token:{identity.token_id}", f"key:{identity.key_id}"}
    holders = {(identity.subject, identity.issued_at), (identity.actor, identity.issued_at)}
    for ancestor in identity.lineage:
        marks |= {f"token:{ancestor.token_id}", f"key:{ancestor.key_id}"}
        holders |= {(ancestor.actor, ancestor.issued_at), (ancestor.authority.subject, ancestor.issued_at)}
    return TokenLineage(frozenset(marks), tuple(sorted(holders)), identity.tenant)
