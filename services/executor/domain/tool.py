"""What the executor knows about a tool: one version, compiled, with everything that running it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from libs.common.errors import Violation
from libs.common.redaction.declared import Declared
from services.executor.domain.argument_spec import ArgumentSpec

VOLUMES = "/volumes"
"""Where a tool sees its volumes, each in a folder of its name."""


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
    argument_spec: ArgumentSpec | None = None
    """How its arguments are taken in beyond their schema; None when the schema says it all."""
    confinement: Confinement = Confinement()
    placement: Placement = Placement()
    rendering: Rendering = Rendering()
