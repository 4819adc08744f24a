"""Who a caller is, once its token has been verified."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Grant:
    """Which tools, at which versions, a token may call."""

    tool: str
    version_constraint: str = ""


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
    """Subject and token id of everyone the authority passed through, the originator first."""
    session_id: str = ""
    claims: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
