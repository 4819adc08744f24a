"""The model of authorization: tokens, decision requests, decisions, limits and revocations."""

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
    """The authority that a new token is requested with."""

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
    """With their schemas as received."""
    budget: Budget = Budget()
    depth: int | None = None
    """How often it may be delegated; None means the issuer's default."""
    confirmation: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class Attenuation:
    """The requested authority of a derived token. Empty and None mean the parent's value, except for scopes."""

    tools: tuple[Grant, ...] = ()
    scopes: tuple[str, ...] = ()
    """Only the named scopes are passed on."""
    resources: tuple[str, ...] = ()
    argument_constraints: tuple[ArgumentConstraint, ...] = ()
    """In addition to the parent's, which always stay. With their schemas as received."""
    budget: Budget = Budget()
    lifetime: float | None = None
    audiences: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    trust_level: int | None = None
    session_id: str = ""
    confirmation: str = ""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A signed token and its claims."""

    token: str
    claims: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"IssuedToken(jti={self.claims['jti']!r})"


class Minting(StrEnum):
    """How a token came into being."""

    ISSUED = "issued"
    EXCHANGED = "exchanged"
    DELEGATED = "delegated"
    NARROWED = "narrowed"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The ledger's record of a token. The token itself is never stored: reading the ledger must not grant authority."""

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
    """The token it was derived from; empty for an issued token."""
    root_id: str = ""
    """The first token of its chain; its own id for an issued token."""
    tenant: str = ""
    minting: Minting = Minting.ISSUED
    digest: str = ""
    """`sha256:` and the hex digest of the token's text, by which a token that was found is recognized."""


@dataclass(frozen=True, slots=True)
class ResolvedDid:
    """A resolved DID, with the thumbprints (RFC 7638) of the authentication keys that can make DPoP proofs, in document
    order."""

    did: str
    thumbprints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExternalToken:
    """A verified token of an external issuer, mapped by the configuration of that issuer."""

    subject: str
    """The DID that its subject is mapped to."""
    expires_at: float
    tenant: str
    groups: tuple[str, ...]
    grant: ExternalGrant


@dataclass(frozen=True, slots=True)
class ExternalGrant:
    """The authority that users of an external issuer get."""

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
    """A tool call that a decision is about."""

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
    """The score of the tool in the registry, 0 to 100."""
    tool_trust_age_hours: int = 0
    tool_stage: str = "submitted"
    publisher_verified: bool = False
    tool_health: str = "healthy"
    """Whether calls of the version can succeed at present: healthy, degraded or unavailable."""
    result_labels: tuple[str, ...] = ()
    """Labels of the results, as declared by the tool."""
    risk: tuple[tuple[str, int], ...] = ()
    # The last two fields, which without_arguments() drops.
    arguments: bytes = b""
    """As JSON; empty when they are unknown or were not sent."""
    resources: tuple[str, ...] = ()
    """The resources that the arguments name, as `kind:value`."""

    def without_arguments(self) -> CallFacts:
        """Return the call without arguments and resources."""
        return CallFacts(*_BUT_ARGUMENTS(self))


_BUT_ARGUMENTS = attrgetter(*CallFacts.__struct_fields__[:-2])


@dataclass(frozen=True, slots=True)
class SubjectFacts:
    """A subject that policy is evaluated for without a token."""

    subject: str
    kind: str
    """user, agent or service."""
    on_behalf_of: str = ""
    """The subject that an agent acts for; empty if it acts for itself or that is unknown."""
    tenant: str = ""
    trust_level: int = 0
    groups: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()


class ContextField(StrEnum):
    """A part of the policy context that can differ between two calls of one caller to one tool."""

    ARGUMENTS = "arguments"
    DIGEST = "digest"
    LABELS = "labels"
    RISK = "risk"
    SESSION = "session"
    TIME = "time"


class DecisionRequest(Struct, frozen=True):
    """The input of a policy decision: everything that policy may read."""

    caller: Identity
    call: CallFacts
    environment: str
    time: datetime = datetime.fromtimestamp(0, UTC)
    labels: frozenset[str] | None = None
    """Labels of the session, or of the token's chain for a call without a session; None when they were not read,
    because no policy that could match uses them."""
    granted_by_name: bool = True
    """Whether a grant of the token names the tool or its namespace; True where no token is known."""
    token_labels: frozenset[str] = frozenset()
    """Labels that calls with tokens of the chain added to any session; empty when `labels` is None."""


@dataclass(frozen=True, slots=True)
class FoundLabels:
    """The labels that a call meets."""

    session: frozenset[str]
    """Of its session, or of the token's chain for a call without a session."""
    token: frozenset[str]
    """That calls with tokens of the chain added to any session."""


@dataclass(frozen=True, slots=True)
class LabelSource:
    """How a label came into a session."""

    label: str
    added_at: datetime
    cleared_at: datetime | None = None
    decision: str = ""
    """The decision by name that added it; empty if that is not known any more."""
    tool_version: str = ""
    invocation_id: str = ""
    place: str = ""
    """The key of the session, as in the scopes of a recorded decision."""


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call may not run; the caller receives this reason."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """Approval is required: `quorum` approvers out of these groups, in the order of escalation."""

    approver_groups: tuple[str, ...]
    quorum: int
    policy: str
    """The policy that requires approval; empty if no policy permits the call without approval."""
    reason_required: bool = False
    """True if an approval needs a reason."""


Outcome: TypeAlias = Allow | Deny | NeedsApproval


def outcome_word(outcome: Outcome) -> str:
    """Return `allow`, `deny` or `needs_approval`."""
    if isinstance(outcome, Allow):
        return "allow"
    return "deny" if isinstance(outcome, Deny) else "needs_approval"


@dataclass(frozen=True, slots=True)
class SuggestedUpdate:
    """A change of the token or the call that could lead to another decision."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Obligation:
    """A duty of the executor: redact_fields, redact_pii, cap_rows, sandbox_tier or dry_run, with its values."""

    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a policy evaluation, with its reasons."""

    outcome: Outcome
    reasons: tuple[str, ...]
    policies: tuple[str, ...] = ()
    suggested_updates: tuple[SuggestedUpdate, ...] = ()
    holds_for_any_arguments: bool = True
    """True if the verdict is the same for every call of this caller to this tool, whatever the context."""
    obligations: tuple[Obligation, ...] = ()
    labels: tuple[str, ...] = ()
    """Labels that policy adds to the results."""
    cleared_labels: tuple[str, ...] = ()
    """Labels that policy removes from the session."""
    blocked_path: str = ""
    """The cause of a refusal: a JSON Pointer into the arguments, or `session_id`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """How the executor ends a call that policy allowed, or that policy was not asked about."""

    outcome: Deny | NeedsApproval
    reasons: tuple[str, ...] = ()
    blocked_path: str = ""
    follows: str = ""
    """The decision of policy that allowed more."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of all calls that count in one bucket. None means unlimited."""

    bucket: str
    window_seconds: float | None = None
    """The sliding window of calls and cost; None means the lifetime of the bucket."""
    max_calls: int | None = None
    max_cost_micros: int | None = None
    max_concurrent: int | None = None
    max_running_seconds: float | None = None
    expires_at: float | None = None
    """When a bucket without a window may be deleted, in seconds since the epoch."""
    source: str = ""
    """The rule or token that sets it."""


class Decision(Struct, frozen=True):
    """A verdict with a name, times and the version of the policy set that made it."""

    name: str
    verdict: Verdict
    policy_set_version: str
    cacheable: bool
    decide_time: datetime
    expire_time: datetime
    limits: tuple[Limit, ...] = ()
    """Limits that must be reserved before the call runs."""
    cost_micros: int = 0
    """The price of the call."""
    added_labels: tuple[str, ...] = ()
    """Labels that are new to the session."""
    cleared_labels: tuple[str, ...] = ()
    """Labels that the session had, and has no more."""
    by_executor: bool = False
    """True for a refusal of the executor; policy was not evaluated for it."""
    follows: str = ""
    """The decision of policy that such a refusal follows; empty if policy was not asked."""


@dataclass(frozen=True, slots=True)
class RevocationTarget:
    """The target of a revocation: one token, all tokens of a subject or agent, or all tokens signed by a key."""

    kind: Literal["token", "subject", "key"]
    value: str


@dataclass(frozen=True, slots=True)
class Revocation:
    """A revocation of tokens."""

    sequence: int
    """Its sequence number in the feed; 0 until it is stored."""
    target: RevocationTarget
    reason: str
    revoked_by: str
    """A DID, or the mesh name of a peer."""
    revoked_at: datetime
    expires_at: datetime
    """When every token that it applies to has expired."""
    tenant: str = ""
    """The tenant that it concerns. A subject loses only its tokens of this tenant; empty means those of every
    tenant."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token in the ledger, with its ancestors."""

    token_id: str
    expires_at: datetime
    ancestors: frozenset[str] = frozenset()
    """The ids of the tokens that it was derived from."""
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Invalidation:
    """An event for caches: the revocations since the last event, and the active policy set."""

    sequence: int
    policy_set_version: str
    revocations: tuple[Revocation, ...] = ()
    snapshot: bool = False
    """True if it replaces all earlier events."""
