"""The results of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libs.common.tool_names import ToolName
from services.registry.domain.model import LifecycleState, Usability, VersionHead
from services.registry.domain.publishing.manifest import MutationClass
from services.registry.domain.runners.need import RunnerNeed


@dataclass(frozen=True, slots=True)
class HitScore:
    """The rank of a hit and its components, each from 0 to 1."""

    total: float
    trust: float
    relevance: float
    latency: float
    cost: float
    exact: float
    lexical: float
    capability: float
    semantic: float
    all_words: bool
    latency_p95: float
    """Seconds."""
    cost_per_call: float | None

    @property
    def utility(self) -> float:
        """The utility of the tool in a context: relevance times rank."""
        return self.relevance * self.total


@dataclass(frozen=True, slots=True)
class Listing:
    """The attributes of a tool for display, without its schemas."""

    name: ToolName
    title: str
    summary: str
    search_hint: str
    provider: str
    category: str
    mutation_class: MutationClass
    required_scopes: frozenset[str]
    feature_gates: tuple[str, ...]
    credentials: tuple[str, ...]
    model_support: tuple[str, ...]
    need: RunnerNeed
    heads: tuple[VersionHead, ...]
    """Every version, highest last."""
    default_version: VersionHead
    """The version that the other fields come from."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A matching tool and its chosen version."""

    listing: Listing
    head: VersionHead
    state: LifecycleState
    score: HitScore
    usability: Usability | None = None
    """What policy answered for the caller; None if it was not asked."""

    @property
    def needs_approval(self) -> bool:
        """True if the caller may call the tool only with an approval."""
        return self.usability is Usability.NEEDS_APPROVAL


@dataclass(frozen=True, slots=True)
class Hits:
    """The matching tools, best first, and search statistics."""

    hits: Sequence[Hit]
    tools: int
    """The number of tools in the index."""
    candidates: int
    """The number of tools that match the query."""
    passed: int
    """The number of candidates that pass the filters."""
    removed: Mapping[str, int]
    """The number of candidates that each filter removed; a candidate counts for the first filter only."""
    nearest: Sequence[Listing]
    """Tools with names similar to the query, when there are no hits."""
    without_vector: int
    """The number of tools without a vector in a semantic search."""
