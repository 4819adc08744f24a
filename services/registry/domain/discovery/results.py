"""What a search answers, with everything that it was decided by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libs.common.tool_names import ToolName
from services.registry.domain.model import LifecycleState, VersionHead
from services.registry.domain.publishing.manifest import MutationClass


@dataclass(frozen=True, slots=True)
class HitScore:
    """A rank and its components, each from 0 to 1."""

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
        """What the tool is worth in a context: nothing if it does not fit, more if it also ranks well."""
        return self.relevance * self.total


@dataclass(frozen=True, slots=True)
class Listing:
    """What is kept of a tool to show it, without its schemas."""

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
    heads: tuple[VersionHead, ...]
    """Every version, the highest last."""
    default_version: VersionHead
    """The version that the other fields are from."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool that fits, and the version of it that was asked for."""

    listing: Listing
    head: VersionHead
    state: LifecycleState
    score: HitScore


@dataclass(frozen=True, slots=True)
class Hits:
    """What fits, the best first, and what was left out."""

    hits: Sequence[Hit]
    tools: int
    """How many tools there are."""
    candidates: int
    """How many fit the question."""
    passed: int
    """How many of these also passed the filters."""
    removed: Mapping[str, int]
    """How many candidates each filter removed; one counts for the first that removed it."""
    nearest: Sequence[str]
    """Names like the question, when nothing is answered."""
    without_vector: int
    """How many tools were compared by words alone although meaning was asked for."""
