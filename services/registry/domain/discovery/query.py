"""The query of a search: text, names, capabilities and filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from libs.common.tool_names import ToolName
from services.registry.domain.caller import Caller
from services.registry.domain.model import LifecycleState, Usability
from services.registry.domain.publishing.manifest import MutationClass

# Policy is asked about this many tools for one query, and only those are shown to a caller.
ASKED_TOOLS = 1000
CALLABLE = frozenset({LifecycleState.AVAILABLE, LifecycleState.DEFERRED, LifecycleState.DEPRECATED})


@dataclass(frozen=True, slots=True)
class Permissions:
    """What policy answered about some tools for the current caller."""

    usability: Mapping[ToolName, Usability]

    def forbids(self, tool: ToolName) -> bool:
        """Return whether policy forbids a tool. It was not asked about every tool."""
        return self.usability.get(tool) is Usability.FORBIDDEN

    def needs_approval(self, tool: ToolName) -> bool:
        """Return whether calls of a tool need an approval."""
        return self.usability.get(tool) is Usability.NEEDS_APPROVAL


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
    permissions: Permissions | None = None
    """What policy answered; None means that it was not asked."""


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
