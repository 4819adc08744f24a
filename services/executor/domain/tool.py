"""Defines a tool version, compiled from its manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from libs.common.errors import Violation
from libs.common.redaction.declared import Declared
from services.executor.domain.argument_spec import ArgumentSpec
from services.executor.domain.checkpoints.checkpoint import CheckpointConfig
from services.executor.domain.http.endpoint import HttpEndpoint
from services.executor.domain.resilience.circuit import CircuitConfig
from services.executor.domain.resilience.retry import RetryPolicy
from services.executor.domain.validation_cost import ValidationCost

VOLUMES = "/volumes"
"""The directory in which a tool sees its volumes."""
FOLDER = "folder"
"""Stands for a folder where an effect has the digest of a file."""


class Mutation(StrEnum):
    """The mutation class of a tool."""

    READ_ONLY = "read_only"
    WRITE_REVERSIBLE = "write_reversible"
    WRITE_IRREVERSIBLE = "write_irreversible"


class TimeoutClass(StrEnum):
    """The expected duration of a run."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    LONG_RUNNING = "long_running"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class ToolTrust:
    """The trust in a tool, as the registry last reported it."""

    score: int = 0
    """0 to 100; 0 until one was computed."""
    computed_at: float | None = None
    """In seconds since 1970."""
    stage: str = "submitted"
    """The contribution stage."""
    publisher_verified: bool = False
    taken_for: tuple[str, ...] = ()
    """Older tools and namespaces of other owners with a similar name, as resource names."""


class Access(StrEnum):
    """The access level of a sandboxed run. Each level includes those before it."""

    PURE = "pure"
    FILES = "files"
    NETWORK = "network"
    SUPERVISED = "supervised"


class SiblingFailure(StrEnum):
    """The effect of a failed call on the other calls of its group."""

    IGNORE = "ignore"
    CANCEL_SIBLINGS = "cancel_siblings"
    CANCEL_DEPENDENT = "cancel_dependent"


class UncertainOutcome(StrEnum):
    """The rule for a run whose outcome is unknown."""

    REPEAT = "repeat"
    QUERY_STATUS = "query_status"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Contract:
    """The schema of a tool's input or output: its validator and its sensitive places."""

    violations: Callable[[Any], Sequence[Violation]]
    declared: Declared | None = None
    """The places that the manifest declares sensitive; None if there are none."""
    cost: ValidationCost = ValidationCost()
    """The work of validating a value."""


@dataclass(frozen=True, slots=True)
class Default:
    """The default of an argument in the schema."""

    argument: str
    pointer: str
    value: Any


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The sunset of a version and its successor."""

    sunset_time: datetime | None
    successor: str
    migration_guide_url: str
    deprecate_time: datetime | None = None


class Limit(StrEnum):
    """A limit that a manifest may set and that a sandbox may be unable to keep."""

    MEMORY = "memory"
    PROCESSES = "processes"
    CPU_SHARE = "cpu_share"
    VOLUMES = "volumes"
    """The volumes of its permissions, and no other files."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """The sandbox limits of a run."""

    tier: str = "machine"
    """The weakest acceptable isolation: `process`, `kernel` or `machine`. A weaker one is never used instead."""
    access: Access = Access.PURE
    millicpus: int = 1000
    memory_bytes: int = 512 << 20
    scratch_bytes: int = 1 << 30
    processes: int = 0
    """The most processes and threads at once; 0 for the default of the sandbox."""
    declared: frozenset[Limit] = frozenset()
    """The limits that the manifest sets, without which the tool does not run."""
    hosts: tuple[str, ...] = ()
    """The reachable host names; `*.example.com` covers one level. Nothing else is reachable."""
    ports: tuple[int, ...] = (80, 443)
    reads: tuple[str, ...] = ()
    """The readable volumes."""
    writes: tuple[str, ...] = ()
    """The writable volumes."""
    shares_workers: bool = False
    """True if one worker may serve all subjects of a tenant."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The scheduling properties of a tool."""

    priority: int = 5
    concurrency_safe: bool = False
    max_concurrency: int = 0
    """The most concurrent calls in one executor; 0 for the default."""
    service: str = ""
    """The external service that the tool depends on. All its tools share one concurrency limit."""
    sibling_failure: SiblingFailure = SiblingFailure.IGNORE


@dataclass(frozen=True, slots=True)
class Rendering:
    """The templates that render a result for the model, the UI and the search index; empty for none."""

    model: str = ""
    ui: str = ""
    search: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """One side effect: declared by a manifest (then a pattern), observed by a sandbox, or reported by a tool."""

    resource: str
    operation: str
    """create, update or delete."""
    observed: bool = False
    """True if the sandbox observed it, False if the tool reported it."""
    before: str = ""
    """The digest of the former content, FOLDER, or empty: there was none, or it is unknown."""
    after: str = ""


@dataclass(frozen=True, slots=True)
class VersionIdentity:
    """The resource name and digest of a version that exists and may not run."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Tool:
    """One version of a tool, compiled and ready to run."""

    name: str
    """`tools/core.echo/versions/1.0.0`."""
    qualified: str
    version: str
    digest: str
    mutation: Mutation
    timeout_class: TimeoutClass
    own_limit: float
    """The tool's own time limit of a run, in seconds."""
    window: float
    """Seconds for which the outcome of an idempotency key is kept."""
    runner: str
    entry_point: str
    input: Contract
    output: Contract
    max_result_bytes: int
    defaults: tuple[Default, ...] = ()
    key_required: bool = True
    repeatable: bool = False
    """True if a repeated run is harmless when the outcome of the first is unknown."""
    summarized: bool = False
    """True if audit records contain redacted summaries beside the digests."""
    required_scopes: tuple[str, ...] = ()
    required_permissions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    approval_always: bool = False
    impact_scope: int = 0
    closed_world: bool = False
    """True if it accesses only the resources that its arguments name."""
    trust: ToolTrust = ToolTrust()
    health: str = ""
    """As the registry last reported it: `healthy`, `degraded` or `unavailable`; empty if it is not known."""
    result_labels: tuple[str, ...] = ()
    resources: Callable[[Any], tuple[str, ...]] | None = None
    """Extracts the resources that arguments name; None if the schema declares none."""
    side_effects: tuple[str, ...] = ()
    deprecation: Deprecation | None = None
    deferred: bool = False
    """True if callers must send the digest, to prove that they know the schema."""
    coerces: bool = False
    """True if arguments are converted to their declared types where that is lossless."""
    hooks_may_change: bool = False
    internal_only: tuple[str, ...] = ()
    """JSON Pointers of the arguments that only the mesh may set."""
    checks: tuple[str, ...] = ()
    """The semantic checks of the arguments, by name."""
    matchers: tuple[tuple[str, str], ...] = ()
    """The kind (`path`, `url`, `command`, ...) and JSON Pointer of each matched argument."""
    effects: tuple[Effect, ...] = ()
    """The declared side effects, as patterns."""
    uncertain: UncertainOutcome = UncertainOutcome.FAIL
    volumes_only: bool = False
    """True if its runs change nothing but volumes, and those only when their changes are committed."""
    status_tool: str = ""
    """The tool that reports whether an effect happened, for QUERY_STATUS."""
    compensation: str = ""
    """The tool that undoes it, as a resource name."""
    dry_run: bool = False
    cancellation_supported: bool = False
    """True if a run stops by itself when it is asked to."""
    progress_supported: bool = False
    """True if a run reports progress. What others report is left out."""
    cache_seconds: float = 0.0
    """How long a result may be cached; 0 for never."""
    stale_seconds: float = 0.0
    """How long after that a result may answer calls whose service fails; 0 for never."""
    persists: bool = True
    """False if large results must not be stored."""
    argument_spec: ArgumentSpec | None = None
    """How arguments are prepared beyond their schema; None if only the schema applies."""
    confinement: Confinement = Confinement()
    secrets: tuple[tuple[str, str], ...] = ()
    """The credentials that its code reads: the name that the code has for it, and the name in the store."""
    placement: Placement = Placement()
    rendering: Rendering = Rendering()
    checkpoint: CheckpointConfig | None = None
    """How its runs save their state; None for a tool that cannot resume."""
    http: HttpEndpoint | None = None
    """The endpoint of a tool of the runner http."""
    retry: RetryPolicy | None = None
    """How failed requests are sent again; None for never."""
    circuit: CircuitConfig = CircuitConfig()
    """When its service is left alone."""

    @property
    def requires_approval(self) -> bool:
        """True if a person approves every call, whatever policy says."""
        return self.approval_always or self.mutation is Mutation.WRITE_IRREVERSIBLE

    @property
    def requires_preview(self) -> bool:
        """True if every call is previewed before it runs, whatever policy says."""
        # Without a preview, a tool is admitted only if its author demands an approval of every call.
        return self.mutation is Mutation.WRITE_IRREVERSIBLE and (self.dry_run or not self.approval_always)
