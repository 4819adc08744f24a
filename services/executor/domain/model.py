"""The nouns of the executor. All of them are facts: made once, never changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from libs.common.auth.identity import Identity
from libs.common.auth.revocations import TokenLineage
from libs.common.errors import MeshError, Reason
from services.executor.domain.argument_spec import Change
from services.executor.domain.states import State
from services.executor.domain.tool import Deprecation, Effect, Tool


class Verdict(StrEnum):
    """What policy answered."""

    ALLOW = "allow"
    DENY = "deny"
    NEEDS_APPROVAL = "needs_approval"


class Event(StrEnum):
    """The kinds of step that the executor records."""

    PERMISSION_DECIDED = "PERMISSION_DECIDED"
    VALIDATION_FAILED = "INVOCATION_VALIDATION_FAILED"
    SUCCEEDED = "INVOCATION_SUCCEEDED"
    FAILED = "INVOCATION_FAILED"
    CANCELED = "INVOCATION_CANCELED"
    TIMED_OUT = "INVOCATION_TIMED_OUT"


class Status(StrEnum):
    """What became of a recorded step."""

    BEGUN = "UNSPECIFIED"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"


class Source(StrEnum):
    """How a result was obtained."""

    COMPUTED = "COMPUTED"
    CACHE = "CACHE"
    REPLAY = "REPLAY"


class Caller(Struct, frozen=True):
    """Who stands behind a call."""

    subject: str
    token_id: str
    expires_at: float
    """When the token says that it ends, in seconds since the epoch."""
    authority_ends: float
    """When the mesh stops accepting it: a little later, because clocks of honest machines differ."""
    tier: str = "user"
    agent: str = ""
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    chain: tuple[tuple[str, str], ...] = ()
    session_id: str = ""
    """The one that the token is bound to; else the one that the request names."""
    other_session: bool = False
    """True if the request names another session than the one that the token is bound to: it is refused."""
    peer: str = ""
    confined: Identity | None = None
    """The token, where it confines resources or arguments; then every call is held against it."""
    token_lineage: TokenLineage = TokenLineage()
    """What its authority falls with when that is revoked."""


class Request(Struct, frozen=True):
    """One call, as it was asked for."""

    tool: str
    caller: Caller
    arguments: bytes = b""
    version: str = ""
    idempotency_key: str = ""
    task_id: str = ""
    native_call_id: str = ""
    tool_digest: str = ""
    """What the caller takes the version to be; empty for whichever it is."""
    priority: int = 0
    """How urgent it is, 1 to 10; 0 for as urgent as its tool says."""
    preview_token: str = ""
    trace_id: str = ""
    deadline: float | None = None
    """By when the answer must be there, on the monotonic clock."""


class Question(Struct, frozen=True):
    """What policy is asked about one call."""

    invocation_id: str
    arguments: dict[str, Any]
    arguments_digest: str
    risk: tuple[tuple[str, int], ...] = ()
    """What hooks know about the risk of the call, by name."""


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """What may be spent together by every call that counts in one bucket. Unset bounds do not bound."""

    bucket: str
    window: float | None = None
    """Seconds over which calls and cost count, sliding; None means for as long as the bucket's token holds."""
    max_calls: int | None = None
    max_cost_micros: int | None = None
    max_concurrent: int | None = None
    max_running: float | None = None
    expires_at: float | None = None
    source: str = ""
    """The rule or token that sets it."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one call is about to spend, in every bucket that it counts in."""

    invocation_id: str
    limits: tuple[SpendingLimit, ...]
    cost_micros: int
    seconds: float
    """How long it would run at most."""
    lease: float
    """Seconds after which it no longer counts as under way, should its executor fall silent."""
    use: bool = True
    """False if it takes none of the calls that a token has in all. One must be left all the same."""


@dataclass(frozen=True, slots=True)
class Obligation:
    """What a decision binds the executor to, such as cap_rows, and to what or how much."""

    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What policy answered about one call."""

    name: str
    verdict: Verdict
    deny_reason: Reason = Reason.PERMISSION_DENIED
    blocked_path: str = ""
    """The argument that a denial is about, if it is about one."""
    reasons: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    policy_set_version: str = ""
    obligations: tuple[Obligation, ...] = ()
    """What the executor must do if it runs the call."""
    approver_groups: tuple[str, ...] = ()
    quorum: int = 0
    suggestions: tuple[tuple[str, str], ...] = ()
    cacheable: bool = False
    expires_at: float = 0.0
    limits: tuple[SpendingLimit, ...] = ()
    """What must be counted before the call runs."""
    cost_micros: int = 0


class RunRequest(Struct, frozen=True):
    """One run, as a runner gets it."""

    invocation_id: str
    arguments: dict[str, Any]
    seconds: float
    """How long it may take; the runner is canceled then."""
    tenant: str = ""
    """Whose run it is: no sandbox ever serves two tenants."""
    subject: str = ""
    idempotency_key: str = ""
    preview: bool = False
    """True if it must only say what it would do."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a call would do."""

    changes: tuple[Effect, ...] = ()
    preconditions: tuple[tuple[str, bool], ...] = ()
    """What must hold, and whether it does."""
    impact: str = ""
    result: Any = None


class RunResult(Struct, frozen=True):
    """What a run brought back. Its effects may still wait to be made real, until somebody has looked at them."""

    value: Any
    effects: tuple[Effect, ...] = ()
    costs: tuple[tuple[str, int], ...] = ()
    """What it cost, part by part, in micro-units."""
    undo: dict[str, Any] | None = None
    """The arguments that the compensating tool needs, where the tool named them."""
    forecast: Forecast | None = None
    """Set when the work was a preview."""
    commit: Callable[[], Awaitable[None]] | None = None
    """Makes its effects real. Raises PARTIAL_FAILURE when only some could be."""
    rollback: Callable[[], Awaitable[None]] | None = None
    """Throws its effects away. Exactly one of the two is called, where they are set."""


class PayloadDigest(Struct, frozen=True):
    """Arguments or a result as evidence shows them."""

    digest: str
    summary: bytes = b""


class Record(Struct, frozen=True):
    """One step of one call, to be made durable."""

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
    effects: tuple[Effect, ...] = ()
    """What was seen to change; what the tool declares is in its manifest."""
    violations: tuple[Effect, ...] = ()
    undone_by: str = ""
    cost_micros: int = 0


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result that is kept apart because it is too large to be embedded."""

    ref: str
    """`results/{id}`."""
    preview: bytes
    size: int
    digest: str
    expires: datetime
    token: str = field(repr=False)
    """What reading it takes, beside the reference."""
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class RenderedResult:
    """A result as its three readers see it; empty where the result itself says it best."""

    model: str = ""
    ui: str = ""
    search: str = ""


PLAIN = RenderedResult()


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """What a preview of a call answers."""

    invocation_id: str
    tool_version: str
    forecast: Forecast
    """Without its result, which is told apart."""
    approval_required: bool
    token: str = field(repr=False)
    """Shows that this very call was previewed."""
    expires: datetime
    trace_id: str
    result: bytes = b""
    """The JSON of the result as the caller of the call would see it; empty where none is told."""
    left_out: str = ""
    """Why a result that the tool told is not here: needs_approval or too_large."""


class Result(Struct, frozen=True):
    """A result that satisfied its contract, with where it comes from and what it took."""

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
    """Where it differs from what the tool returned, as JSON Pointers, because policy demanded it."""
    deprecation: Deprecation | None = None
    evidence: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    replayed: bool = False
    changes: tuple[Change, ...] = ()
    """What was changed about the arguments before the tool received them."""
    context: tuple[str, ...] = ()
    """What hooks had to add."""
    effects: tuple[Effect, ...] = ()
    effect_count: int = 0
    """How many there were; an answer has room for so many of them."""
    costs: tuple[tuple[str, int], ...] = ()
    undone_by: str = ""
    """The tool that would undo it, as a resource name."""
    undo: bytes = b""
    """Its arguments, as JSON, where the tool named them."""
    stored: StoredResult | None = None
    """Set when the content is kept apart; then `content` is empty."""
    rendered: RenderedResult = PLAIN
    retrieved: datetime | None = None
    """When the facts were read, where that was earlier than the result was made."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Claim:
    """A wish to be the one call that has the effect behind a key."""

    tenant: str
    tool: str
    subject: str
    session: str
    key: str
    arguments_digest: str
    invocation_id: str
    window: float
    """Seconds for which the key is remembered after its call ended."""
    repeatable: bool


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """What an earlier call with the same key ended in: a result or an error."""

    invocation_id: str
    outcome: Result | MeshError
