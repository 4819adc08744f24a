"""The nouns of authorization: what is granted, what is asked, what was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from libs.common.auth.identity import Grant, Identity
from libs.common.errors import Reason
from libs.common.names import ToolName
from libs.common.semver import Version

USER_TIER = "user"


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """The authority that a token is asked to carry."""

    subject: str
    tools: tuple[Grant, ...] = ()
    scopes: tuple[str, ...] = ()
    lifetime: float | None = None
    """Seconds; None means the issuer's default."""
    tenant: str = ""
    groups: tuple[str, ...] = ()
    trust_level: int = 0
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A signed token and exactly the claims inside it."""

    token: str
    claims: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"IssuedToken(jti={self.claims['jti']!r})"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What is remembered of a token. Never the token: whoever reads the ledger gains no authority by it."""

    token_id: str
    subject: str
    tier: str
    issued_at: datetime
    expires_at: datetime
    key_id: str
    scopes: tuple[str, ...]
    tools: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Introspection:
    """Whether a token is accepted: its claims when it is, the code of the error table when it is not."""

    claims: Mapping[str, Any] | None = None
    error_code: str = ""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """One call that somebody wants to make."""

    tool: ToolName
    version: Version
    mutation_class: str
    required_scopes: frozenset[str] = frozenset()
    required_permissions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    approval_always: bool = False
    impact_scope: int = 0
    arguments_digest: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that policy may read about a call."""

    caller: Identity
    call: CallFacts
    environment: str


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call may not run; the caller receives this reason."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """A person must decide: `quorum` of these groups, in the order of escalation."""

    approver_groups: tuple[str, ...]
    quorum: int
    policy: str
    """The policy that asks for a person; empty when merely no policy lets the call run without one."""


Outcome: TypeAlias = Allow | Deny | NeedsApproval


@dataclass(frozen=True, slots=True)
class SuggestedUpdate:
    """A change that would lead to another answer."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was answered, and why."""

    outcome: Outcome
    reasons: tuple[str, ...]
    policies: tuple[str, ...] = ()
    suggested_updates: tuple[SuggestedUpdate, ...] = ()
    holds_for_any_arguments: bool = True
    """True if neither the arguments nor the session could have changed the answer."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict as a fact: named, dated, and bound to the policies that were asked."""

    name: str
    verdict: Verdict
    policy_set_version: str
    cacheable: bool
    decide_time: datetime
    expire_time: datetime
