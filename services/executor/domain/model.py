"""The immutable records that the executor works with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from libs.common.auth.identity import Grant, Identity, TokenLineage
from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.redaction.scanner import Scanner
from services.executor.domain.argument_spec import Change
from services.executor.domain.run import Forecast
from services.executor.domain.states import State
from services.executor.domain.tool import Deprecation, Effect, Tool, VersionIdentity


class Verdict(StrEnum):
    """The outcome of a policy decision."""

    ALLOW = "allow"
    DENY = "deny"
    NEEDS_APPROVAL = "needs_approval"


class Event(StrEnum):
    """The kinds of audit record that the executor writes."""

    PERMISSION_DECIDED = "PERMISSION_DECIDED"
    VALIDATION_FAILED = "INVOCATION_VALIDATION_FAILED"
    QUEUED = "INVOCATION_QUEUED"
    STARTED = "INVOCATION_STARTED"
    PROGRESS = "INVOCATION_PROGRESS"
    YIELDED = "INVOCATION_YIELDED"
    SUCCEEDED = "INVOCATION_SUCCEEDED"
    FAILED = "INVOCATION_FAILED"
    CANCELED = "INVOCATION_CANCELED"
    TIMED_OUT = "INVOCATION_TIMED_OUT"
    KEY_SETTLED = "KEY_SETTLED"


class Status(StrEnum):
    """The status of a recorded step."""

    BEGUN = "UNSPECIFIED"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"


class Source(StrEnum):
    """The origin of a result."""

    COMPUTED = "COMPUTED"
    CACHE = "CACHE"
    REPLAY = "REPLAY"
    STALE_CACHE = "STALE_CACHE"


class Caller(Struct, frozen=True):
    """The identity on whose behalf a call is made."""

    subject: str
    token_id: str
    expires_at: float
    """The expiry of the token, in seconds since the epoch."""
    authority_ends: float
    """The end of its acceptance: a little later than `expires_at`, to tolerate clock skew."""
    tier: str = "user"
    agent: str = ""
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    chain: tuple[tuple[str, str], ...] = ()
    session_id: str = ""
    """The session that the token is bound to; else the one that the request names."""
    other_session: bool = False
    """True if the request names another session than the token. Such a call is refused."""
    peer: str = ""
    grants: tuple[Grant, ...] = ()
    """The tools that the token names. Nothing else is called with it, and nothing else is shown to exist."""
    confined: Identity | None = None
    """The token, if it restricts resources or arguments. Every call is checked against it."""
    token_lineage: TokenLineage = TokenLineage()
    """The ids whose revocation also revokes this token."""


class Request(Struct, frozen=True):
    """One call, as the caller sent it."""

    tool: str
    caller: Caller
    arguments: bytes = b""
    version: str = ""
    idempotency_key: str = ""
    task_id: str = ""
    native_call_id: str = ""
    tool_digest: str = ""
    """The digest of the version that the caller expects; empty for any."""
    priority: int = 0
    """The priority, 1 to 10; 0 for the default of the tool."""
    preview_token: str = ""
    ticket: str = ""
    """The approved ticket of this very call, by name; empty for none."""
    trace_id: str = ""
    deadline: float | None = None
    """The deadline, on the monotonic clock."""
    effect_key: str = ""
    """The key that the tool sees, if it is another: a resumed run has that of the run that it continues."""
    caller_capabilities: tuple[str, ...] = ()
    """What the caller can be asked for: `elicitation`, `sampling`, `roots`."""


class Question(Struct, frozen=True):
    """The input of one policy decision."""

    invocation_id: str
    arguments: dict[str, Any]
    arguments_digest: str
    risk: tuple[tuple[str, int], ...] = ()
    """Risk facts that hooks report, by name."""
    resources: tuple[str, ...] = ()
    """The resources that the arguments name."""


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """The limit of one budget bucket, shared by all calls that count in it. Unset bounds are not enforced."""

    bucket: str
    window: float | None = None
    """The sliding window of calls and cost, in seconds; None for the lifetime of the bucket's token."""
    max_calls: int | None = None
    max_cost_micros: int | None = None
    max_concurrent: int | None = None
    max_running: float | None = None
    expires_at: float | None = None
    source: str = ""
    """The rule or token that sets the limit."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The reservation of one call in all of its budget buckets."""

    invocation_id: str
    limits: tuple[SpendingLimit, ...]
    cost_micros: int
    seconds: float
    """The longest run time."""
    lease: float
    """Seconds after which it no longer counts as running if its executor disappears."""
    use: bool = True
    """False if it does not use up a call of the token's total. One must be left all the same."""


@dataclass(frozen=True, slots=True)
class Obligation:
    """A condition of an allow decision, such as cap_rows, with its values."""

    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The policy decision about one call."""

    name: str
    verdict: Verdict
    deny_reason: Reason = Reason.PERMISSION_DENIED
    blocked_path: str = ""
    """The argument that a denial refers to, if any."""
    reasons: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    policy_set_version: str = ""
    obligations: tuple[Obligation, ...] = ()
    """The obligations of the executor if it runs the call."""
    approver_groups: tuple[str, ...] = ()
    quorum: int = 0
    reason_required: bool = False
    """True if an approval needs a reason."""
    suggestions: tuple[tuple[str, str], ...] = ()
    cacheable: bool = False
    expires_at: float = 0.0
    limits: tuple[SpendingLimit, ...] = ()
    """The budgets that the call counts in before it runs."""
    cost_micros: int = 0
    made_for: str = field(default="", compare=False)
    """The invocation that it was made for. Others reuse it if it is cacheable."""


class PayloadDigest(Struct, frozen=True):
    """Arguments or a result as audit records show them."""

    digest: str
    summary: bytes = b""


class Record(Struct, frozen=True):
    """The audit record of one step of a call."""

    record_id: str
    event: Event
    time: datetime
    invocation_id: str
    request: Request
    tool: Tool | None
    previous_state: State | None
    state: State
    status: Status
    decision: Decision | None = None
    arguments: PayloadDigest | None = None
    result: PayloadDigest | None = None
    reason: Reason | None = None
    latency: float | None = None
    follows: str = ""
    replayed: bool = False
    sandbox: str = ""
    attempt: int = 0
    preview: bool = False
    changes: tuple[Change, ...] = ()
    hooks: tuple[str, ...] = ()
    state_path: str = ""
    unavailable: VersionIdentity | None = None
    """The version that was asked for, if it exists and may not run."""
    effects: tuple[Effect, ...] = ()
    """The changes that the call made, as observed or reported."""
    foreseen: tuple[Effect, ...] = ()
    """The changes that are expected and not known to have happened."""
    violations: tuple[Effect, ...] = ()
    undone_by: str = ""
    refused_calls: int = 1
    """How many refused calls it stands for."""
    costs: tuple[tuple[str, int], ...] = ()
    cancellation: str = ""
    """How a canceled tool was stopped; empty for others."""
    resumed_from: str = ""
    """The checkpoint that the run started from, and those that could not be used."""
    scanner: Scanner | None = None
    """Redacts its texts; None for the scanner of the tenant."""
    resource: str = ""
    """The resource of an administrative act, such as a settled key; empty for a step of a call."""
    act_reason: str = ""
    """The reason that was given for the act, redacted."""
    ticket: str = ""
    """The ticket that the call asked for or uses, by name."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The reference to a result that is stored because it is too large to be embedded."""

    ref: str
    """`results/{id}`."""
    preview: bytes
    size: int
    digest: str
    expires: datetime
    token: str = field(repr=False)
    """The access token that FetchResult requires."""
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class RenderedResult:
    """A result rendered for the model, the UI and the search index; empty without a template."""

    model: str = ""
    ui: str = ""
    search: str = ""


PLAIN = RenderedResult()


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """The result of a preview."""

    invocation_id: str
    tool_version: str
    forecast: Forecast
    """The forecast without its result."""
    approval_required: bool
    token: str = field(repr=False)
    """The proof that this very call was previewed."""
    expires: datetime
    trace_id: str
    declared: tuple[Effect, ...] = ()
    """The effects that the manifest declares, as patterns."""
    result: bytes = b""
    """The predicted result as JSON, redacted like a real one; empty if there is none."""
    left_out: str = ""
    """Why a predicted result is omitted: needs_approval or too_large."""


class CallWarning(NamedTuple):
    """Something that a caller should know of a tool: a code, a sentence, and the resource that it names."""

    code: str
    message: str
    resource: str


class Result(Struct, frozen=True):
    """The verified result of a call, with its provenance and execution metadata."""

    result_id: str
    invocation_id: str
    content: bytes
    tool_version: str
    tool_digest: str
    source: Source
    created: datetime
    total: float
    phases: tuple[tuple[str, float], ...]
    attempts: int
    sandbox: str
    trace_id: str
    changed: tuple[str, ...] = ()
    """JSON Pointers of the places that obligations changed in the tool's result."""
    deprecation: Deprecation | None = None
    evidence: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    replayed: bool = False
    changes: tuple[Change, ...] = ()
    """The changes to the arguments before the tool received them."""
    context: tuple[str, ...] = ()
    """The context that hooks added."""
    effects: tuple[Effect, ...] = ()
    effect_count: int = 0
    """The number of all effects; `effects` may be truncated."""
    declared: tuple[Effect, ...] = ()
    """The effects that the manifest declares, as patterns."""
    costs: tuple[tuple[str, int], ...] = ()
    undone_by: str = ""
    """The compensating tool, as a resource name."""
    undo: bytes = b""
    """The arguments of the compensating tool, as JSON."""
    stored: StoredResult | None = None
    """Set when the result is stored; then `content` is empty."""
    rendered: RenderedResult = PLAIN
    retrieved: datetime | None = None
    """When a cached result was computed; None if it was computed for this call."""
    warnings: tuple[CallWarning, ...] = ()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Claim:
    """The claim of one call on an idempotency key."""

    tenant: str
    tool: str
    subject: str
    session: str
    key: str
    arguments_digest: str
    invocation_id: str
    window: float
    """Seconds for which the outcome is kept after the call ended."""
    repeatable: bool
    volumes_only: bool = False
    """True if the run changes nothing unless its result is prepared."""

    @property
    def name(self) -> str:
        """The resource name of the key, `keys/{id}`. It depends on the key and its scope alone."""
        return key_name(self.tenant, self.tool, self.subject, self.session, self.key)


def key_name(*scope: str) -> str:
    """Return the resource name of an idempotency key: tenant, tool, subject, session and key."""
    return f"keys/{hashlib.sha256(dump(scope)).hexdigest()[:32]}"


class EncodedRecord(NamedTuple):
    """An audit record as it is sent to the log."""

    record_id: str
    encoded: bytes


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """The outcome of the first call with a key: a result or an error."""

    invocation_id: str
    outcome: Result | MeshError
    record: Record | None = None
    """The audit record of the outcome, to be stored with it."""
    unconfirmed: EncodedRecord | None = None
    """The stored audit record, until it is known to be in the log."""
