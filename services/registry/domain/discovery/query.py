"""What is asked for: words, names, capabilities, and what a tool must satisfy."""

from __future__ import annotations

from dataclasses import dataclass, field

from libs.common.tool_names import ToolName
from services.registry.domain.model import LifecycleState
from services.registry.domain.publishing.manifest import MutationClass

CALLABLE = frozenset({LifecycleState.AVAILABLE, LifecycleState.DEFERRED, LifecycleState.DEPRECATED})


@dataclass(frozen=True, slots=True)
class Grant:
    """Tools that a token may call; an empty constraint means every version."""

    pattern: str
    version_constraint: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf tools are looked for: what its token grants."""

    grants: tuple[Grant, ...]
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a tool must satisfy. Unset parts let everything through."""

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
    """None sees everything."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question as the index understands it. With neither text, names nor capabilities, every tool fits."""

    text: str = ""
    names: tuple[ToolName, ...] = ()
    """Tools that are meant by name; aliases are already resolved."""
    only_names: bool = False
    """True when names were asked for and nothing else fits."""
    capabilities: tuple[str, ...] = ()
    vector: bytes | None = None
    """The meaning of the text; None to compare words alone."""
    filters: Filters = field(default_factory=Filters)
    limit: int = 10
