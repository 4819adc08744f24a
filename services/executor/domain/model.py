"""The nouns of the executor. All of them are facts: made once, never changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from libs.common.auth.identity import Identity
from libs.common.auth.revocations import Descent
from libs.common.errors import MeshError, Reason, Violation
from libs.common.redaction.declared import Declared
from services.executor.domain.states import State


class Mutation(StrEnum):
    """What a tool does to the world."""

    READ_ONLY = "read_only"
    WRITE_REVERSIBLE = "write_reversible"
    WRITE_IRREVERSIBLE = "write_irreversible"


class TimeoutClass(StrEnum):
    """How long a caller should expect to wait."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    LONG_RUNNING = "long_running"
    ASYNC = "async"


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
    REPLAY = "REPLAY"


@dataclass(frozen=True, slots=True)
class Caller:
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
    peer: str = ""
    confined: Identity | None = None
    """The token, where it confines resources or arguments; then every call is held against it."""
    descent: Descent = field(default=Descent(), repr=False, compare=False)
    """What its authority falls with when that is revoked."""


@dataclass(frozen=True, slots=True)
class Request:
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
    trace_id: str = ""
    deadline: float | None = None
    """By when the answer must be there, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Contract:
    """One side of a tool's promise: what breaks it, and what of it must not be shown."""

    violations: Callable[[Any], Sequence[Violation]]
    declared: Declared | None = None
    """The places that the manifest declares sensitive; None when it declares none."""


@dataclass(frozen=True, slots=True)
class Default:
    """A value that the schema names for an argument that was left out."""

    argument: str
    pointer: str
    value: Any


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The announced end of a version and the way onward."""

    sunset_time: datetime | None
    successor: str
    migration_guide_url: str


@dataclass(frozen=True, slots=True)
class Tool:
    """One version of a tool, ready to be called."""

    name: str
    """`tools/core.echo/versions/1.0.0`."""
    qualified: str
    version: str
    digest: str
    mutation: Mutation
    timeout_class: TimeoutClass
    own_limit: float
    """Seconds that a run may take, whatever the caller would grant."""
    window: float
    """Seconds that an idempotency key is remembered."""
    runner: str
    entry_point: str
    input: Contract
    output: Contract
    max_result_bytes: int
    defaults: tuple[Default, ...] = ()
    key_required: bool = True
    repeatable: bool = False
    """True if running it again is harmless when nobody knows whether it ran."""
    summarized: bool = False
    """True if its audit records carry redacted summaries beside the digests."""
    required_scopes: tuple[str, ...] = ()
    required_permissions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    approval_always: bool = False
    impact_scope: int = 0
    closed_world: bool = False
    """True if it reaches nothing but the resources that its arguments name."""
    trust: int = 0
    """How far it is trusted, 0 to 100; 0 while nobody vouches for it."""
    result_labels: tuple[str, ...] = ()
    resources: Callable[[Any], tuple[str, ...]] | None = None
    """Finds the resources that arguments name; None when its schema names none."""
    side_effects: tuple[str, ...] = ()
    deprecation: Deprecation | None = None
    deferred: bool = False
    """Callers must show by its digest that they know its schema."""


@dataclass(frozen=True, slots=True)
class Question:
    """What policy is asked about one call."""

    invocation_id: str
    arguments: dict[str, Any]
    arguments_digest: str


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


@dataclass(frozen=True, slots=True)
class Payload:
    """Arguments or a result as evidence shows them."""

    digest: str
    summary: bytes = b""


@dataclass(frozen=True, slots=True)
class Record:
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
    arguments: Payload | None = None
    result: Payload | None = None
    reason: Reason | None = None
    latency: float | None = None
    follows: str = ""
    replayed: bool = False
    sandbox: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Result:
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
    adjusted: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Where it differs from what the tool returned, as JSON Pointers, because policy demanded it."""
    deprecation: Deprecation | None = None
    evidence: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish to be the one call that has the effect behind a key."""

    tool: str
    subject: str
    session: str
    key: str
    arguments_digest: str
    invocation_id: str
    lease: float
    """Seconds after which a claim whose owner fell silent may be doubted."""
    window: float
    repeatable: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """What an earlier call with the same key ended in: a result or an error."""

    invocation_id: str
    outcome: Result | MeshError
