"""The query of a search: text, names, capabilities and filters."""

from __future__ import annotations

from dataclasses import dataclass, field

from libs.common.tool_names import ToolName
from services.registry.domain.model import LifecycleState
from services.registry.domain.publishing.manifest import MutationClass

CALLABLE = frozenset({LifecycleState.AVAILABLE, LifecycleState.DEFERRED, LifecycleState.DEPRECATED})


@dataclass(frozen=True, slots=True)
class Grant:
    """A tool pattern that a token grants; an empty constraint means every version."""

    pattern: str
    version_constraint: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """The grants and scopes of the caller's token."""

    grants: tuple[Grant, ...]
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a search. Unset filters match everything."""

    min_trust: float = 0.0
    max_latency: float | None = None
    """Seconds."""
    max_cost: float | None = None
    mutation_classes: frozenset[MutationClass] = frozenset()
    namespaces: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    states: frozenset[LifecycleState] = CALLABLE
    version_constraint: str = ""
    caller: Caller | None = None
    """None means unrestricted."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the index. Without text, names and capabilities, every tool matches."""

    text: str = ""
    names: tuple[ToolName, ...] = ()
    """Named tools, with aliases already resolved."""
    only_names: bool = False
    """True when only the named tools match."""
    capabilities: tuple[str, ...] = ()
    vector: bytes | None = None
    """The embedding of the text; None for a lexical search."""
    filters: Filters = field(default_factory=Filters)
    limit: int = 10
