"""The nouns of authorization: what is granted, what is asked, what was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from libs.common.auth.identity import ArgumentConstraint, Budget, Grant, Identity
from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName


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
    resources: tuple[str, ...] = ()
    argument_constraints: tuple[ArgumentConstraint, ...] = ()
    """With their schemas as they were sent."""
    budget: Budget = Budget()
    depth: int | None = None
    """How often it may be passed on; None means the issuer's default."""
    confirmation: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a token's authority that is passed on. What is empty or None is passed on as it is, but for scopes."""

    tools: tuple[Grant, ...] = ()
    scopes: tuple[str, ...] = ()
    """Nothing is passed on unless it is named."""
    resources: tuple[str, ...] = ()
    argument_constraints: tuple[ArgumentConstraint, ...] = ()
    """Beside those of the parent, which stay. With their schemas as they were sent."""
    budget: Budget = Budget()
    lifetime: float | None = None
    audiences: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    trust_level: int | None = None
    session_id: str = ""
    confirmation: str = ""


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
    agent: str = ""
    parent_id: str = ""
    """The token it was derived from; empty for one that was issued."""
    root_id: str = ""
    """The token at the beginning of its chain; its own id for one that was issued."""


@dataclass(frozen=True, slots=True)
class ResolvedDid:
    """A DID that somebody vouches for, with the thumbprints (RFC 7638) of the keys it authenticates by and can make proofs with, the first
    one first."""

    did: str
    thumbprints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutsideToken:
    """A verified token of an outside issuer, as the configuration of that issuer reads it."""

    subject: str
    """The DID that stands for its subject here."""
    expires_at: float
    tenant: str
    groups: tuple[str, ...]
    grant: OutsideGrant


@dataclass(frozen=True, slots=True)
class OutsideGrant:
    """What the users of an outside issuer are granted at most."""

    tools: tuple[Grant, ...]
    scopes: tuple[str, ...]
    trust_level: int
    lifetime: int
    depth: int
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Introspection:
    """Whether a token is accepted: its claims when it is, the code of the error table when it is not."""

    claims: Mapping[str, Any] | None = None
    error_code: str = ""


class CallFacts(Struct, frozen=True):
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
    tool_digest: str = ""
    invocation_id: str = ""
    closed_world: bool = False
    tool_trust: int = 0
    result_labels: tuple[str, ...] = ()
    """What the results carry, by the tool's own word."""
    risk: tuple[tuple[str, int], ...] = ()
    # Last, so that the others can be taken together without them.
    arguments: bytes = b""
    """As JSON; empty when they are not known or not told."""
    resources: tuple[str, ...] = ()
    """What the arguments name, as `kind:value`."""

    def without_arguments(self) -> CallFacts:
        """Return everything but the arguments and what they name."""
        return CallFacts(*_BUT_ARGUMENTS(self))


_BUT_ARGUMENTS = attrgetter(*CallFacts.__struct_fields__[:-2])


@dataclass(frozen=True, slots=True)
class SubjectFacts:
    """Somebody whom policy is asked about without a token of theirs."""

    subject: str
    kind: str
    """user, agent or service."""
    on_behalf_of: str = ""
    """Whose authority an agent acts on; empty where it acts for itself, or that is not known."""
    tenant: str = ""
    trust_level: int = 0
    groups: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()


class Fact(StrEnum):
    """What policy may read that can differ between two calls of one caller to one tool."""

    ARGUMENTS = "arguments"
    DIGEST = "digest"
    LABELS = "labels"
    RISK = "risk"
    SESSION = "session"
    TIME = "time"


class Question(Struct, frozen=True):
    """Everything that policy may read about a call."""

    caller: Identity
    call: CallFacts
    environment: str
    moment: datetime = datetime.fromtimestamp(0, UTC)
    labels: frozenset[str] | None = None
    """What the session carries; None when it was not looked up, because no policy that could match reads it."""


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
class Obligation:
    """What binds whoever runs the call: redact_fields, redact_pii, cap_rows, sandbox_tier or dry_run, and to what or how much."""

    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was answered, and why."""

    outcome: Outcome
    reasons: tuple[str, ...]
    policies: tuple[str, ...] = ()
    suggested_updates: tuple[SuggestedUpdate, ...] = ()
    holds_for_any_arguments: bool = True
    """True if nothing that differs between two calls of this caller to this tool could have changed the answer."""
    obligations: tuple[Obligation, ...] = ()
    labels: tuple[str, ...] = ()
    """What policy says that the results carry."""
    blocked_path: str = ""
    """Where the refusal lies: a JSON pointer into the arguments, or `session_id`."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What may be spent together by every call that counts in one bucket. Unset bounds do not bound."""

    bucket: str
    window_seconds: float | None = None
    """Over how long calls and cost count, sliding; None means for as long as the bucket is kept."""
    max_calls: int | None = None
    max_cost_micros: int | None = None
    max_concurrent: int | None = None
    max_running_seconds: float | None = None
    expires_at: float | None = None
    """When a bucket without a window may be forgotten, in seconds since the epoch."""
    source: str = ""
    """The rule or token that sets it."""


class Decision(Struct, frozen=True):
    """A verdict as a fact: named, dated, and bound to the policies that were asked."""

    name: str
    verdict: Verdict
    policy_set_version: str
    cacheable: bool
    decide_time: datetime
    expire_time: datetime
    limits: tuple[Limit, ...] = ()
    """What must be counted before the call runs."""
    cost_micros: int = 0
    """What the call counts as costing."""
    added_labels: tuple[str, ...] = ()
    """What the session did not carry before this call."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is revoked: one token, all tokens of a subject or agent, or all tokens signed by a key."""

    kind: Literal["token", "subject", "key"]
    value: str


@dataclass(frozen=True, slots=True)
class Revocation:
    """Authority that was taken back."""

    sequence: int
    """Its place in the feed; 0 until it has one."""
    target: Target
    reason: str
    revoked_by: str
    """A DID, or the mesh name of a peer."""
    revoked_at: datetime
    expires_at: datetime
    """When nothing it applies to can hold any more."""


@dataclass(frozen=True, slots=True)
class Issued:
    """What the ledger knows of one token."""

    token_id: str
    expires_at: datetime
    ancestors: frozenset[str] = frozenset()
    """The ids of the tokens that it was derived from."""


@dataclass(frozen=True, slots=True)
class Invalidation:
    """A word to those who remember answers: what was revoked since the last one, and which policies are asked now."""

    sequence: int
    policy_set_version: str
    revocations: tuple[Revocation, ...] = ()
    snapshot: bool = False
    """True if it replaces everything known before."""
