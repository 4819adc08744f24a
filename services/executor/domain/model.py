"""The nouns of the executor. All of them are facts: made once, never changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from libs.common.auth.identity import Identity
from libs.common.auth.revocations import Descent
from libs.common.errors import MeshError, Reason, Violation
from libs.common.redaction.declared import Declared
from services.executor.domain.intake import Intake
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
    CACHE = "CACHE"
    REPLAY = "REPLAY"


class Access(StrEnum):
    """What a run in a sandbox may do beyond computing. Each level includes those before it."""

    PURE = "pure"
    FILES = "files"
    NETWORK = "network"
    SUPERVISED = "supervised"


class SiblingFailure(StrEnum):
    """What the failure of one call does to the others of its group."""

    IGNORE = "ignore"
    CANCEL_SIBLINGS = "cancel_siblings"
    CANCEL_DEPENDENT = "cancel_dependent"


class UncertainOutcome(StrEnum):
    """How an effect that may have happened is resolved."""

    REPEAT = "repeat"
    QUERY_STATUS = "query_status"
    FAIL = "fail"


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
    priority: int = 0
    """How urgent it is, 1 to 10; 0 for as urgent as its tool says."""
    preview_token: str = ""
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
class Change:
    """One change to the arguments on their way from the caller to the tool."""

    path: str
    """Where, as a JSON Pointer."""
    source: str
    """Who made it: default, coercion, hook, permission or approver."""
    reason: str = ""
    """Which rule, hook or approver."""


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The announced end of a version and the way onward."""

    sunset_time: datetime | None
    successor: str
    migration_guide_url: str


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a run in a sandbox may use and reach."""

    tier: str = "machine"
    """The weakest sandbox that will do: `process`, `kernel` or `machine`. A weaker one is never used instead."""
    access: Access = Access.PURE
    millicpus: int = 1000
    memory_bytes: int = 512 << 20
    scratch_bytes: int = 1 << 30
    processes: int = 0
    """Processes and threads at once; 0 for as many as the sandbox allows."""
    hosts: tuple[str, ...] = ()
    """Host names it may reach; `*.example.com` covers one level. Nothing else is reachable."""
    ports: tuple[int, ...] = (80, 443)
    reads: tuple[str, ...] = ()
    """Volumes that it sees."""
    writes: tuple[str, ...] = ()
    """Volumes that it may change."""


@dataclass(frozen=True, slots=True)
class Placement:
    """How calls of a tool are scheduled beside others."""

    priority: int = 5
    concurrency_safe: bool = False
    max_concurrency: int = 0
    """How many may run at once in one executor; 0 for as many as the mesh allows."""
    service: str = ""
    """The outside service that they all lean on; it has a bulkhead of its own."""
    sibling_failure: SiblingFailure = SiblingFailure.IGNORE


@dataclass(frozen=True, slots=True)
class Rendering:
    """How results are shown to their three readers, as templates over the result; empty for none."""

    model: str = ""
    ui: str = ""
    search: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """One change to the world: declared by a manifest (then `resource` is a pattern), seen by a sandbox, or reported by a tool."""

    resource: str
    operation: str
    """create, update or delete."""
    observed: bool = False
    """True if the sandbox saw it; a tool can only report."""


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
    coerces: bool = False
    """True if the mesh may turn what a model wrote into the declared type, where nothing is lost."""
    hooks_may_change: bool = False
    internal_only: tuple[str, ...] = ()
    """JSON Pointers of arguments that only the mesh may set."""
    checks: tuple[str, ...] = ()
    """Names of the semantic checks that arguments must pass."""
    matchers: tuple[tuple[str, str], ...] = ()
    """What arguments are to policy: `path`, `url`, `command`, ... and the JSON Pointer of each."""
    effects: tuple[Effect, ...] = ()
    """Every change that it may make, as patterns."""
    uncertain: UncertainOutcome = UncertainOutcome.FAIL
    status_tool: str = ""
    """The tool that knows whether an effect happened, for QUERY_STATUS."""
    compensation: str = ""
    """The tool that undoes it, as a resource name."""
    dry_run: bool = False
    cache_seconds: float = 0.0
    """How long a result may be reused; 0 for never."""
    persists: bool = True
    """False if its results must never be stored."""
    intake: Intake | None = None
    """How its arguments are taken in beyond their schema; None when the schema says it all."""
    confinement: Confinement = Confinement()
    placement: Placement = Placement()
    rendering: Rendering = Rendering()


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
class Work:
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


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run brought back. Its effects may still wait to be made real, until somebody has looked at them."""

    value: Any
    effects: tuple[Effect, ...] = ()
    costs: tuple[tuple[str, int], ...] = ()
    """What it cost, part by part, in micro-units."""
    undo: dict[str, Any] | None = None
    """The arguments that the compensating tool needs, where the tool named them."""
    forecast: Forecast | None = None
    """Set when the work was a preview."""
    keep: Callable[[], Awaitable[None]] | None = None
    """Makes its effects real. Raises PARTIAL_FAILURE when only some could be."""
    drop: Callable[[], Awaitable[None]] | None = None
    """Throws its effects away. Exactly one of the two is called, where they are set."""


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
class Stored:
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
class Shown:
    """A result as its three readers see it; empty where the result itself says it best."""

    model: str = ""
    ui: str = ""
    search: str = ""


PLAIN = Shown()


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a preview of a call answers."""

    invocation_id: str
    tool_version: str
    forecast: Forecast
    approval_required: bool
    token: str = field(repr=False)
    """Shows that this very call was previewed."""
    expires: datetime
    trace_id: str


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
    costs: tuple[tuple[str, int], ...] = ()
    undone_by: str = ""
    """The tool that would undo it, as a resource name."""
    undo: bytes = b""
    """Its arguments, as JSON, where the tool named them."""
    stored: Stored | None = None
    """Set when the content is kept apart; then `content` is empty."""
    shown: Shown = PLAIN
    retrieved: datetime | None = None
    """When the facts were read, where that was earlier than the result was made."""


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
