"""Where a surface will be used, and what there stands against a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from libs.common.tool_names import ToolName
from services.registry.domain.discovery.results import Hit, Listing
from services.registry.domain.model import LifecycleState


class SurfaceReason(StrEnum):
    """Why a tool is not, or not wholly, on a surface, in the words of the Agent Tool standard."""

    POLICY_BLOCKED = "policy_blocked"
    CREDENTIAL_MISSING = "credential_missing"
    SETUP_REQUIRED = "setup_required"
    MODEL_UNSUPPORTED = "model_unsupported"
    RECURSIVE_TOOL_FORBIDDEN = "recursive_tool_forbidden"
    ROLE_NOT_ALLOWED = "role_not_allowed"
    FEATURE_DISABLED = "feature_disabled"
    DEFERRED_UNTIL_DISCOVERED = "deferred_until_discovered"


# What a state that may not be called stands for; the others are no part of any surface.
BY_STATE: Mapping[LifecycleState, SurfaceReason] = {
    LifecycleState.QUARANTINED: SurfaceReason.POLICY_BLOCKED,
    LifecycleState.DISABLED: SurfaceReason.FEATURE_DISABLED,
    LifecycleState.REQUIRES_SETUP: SurfaceReason.SETUP_REQUIRED,
}
# The caller may not; everything else means that the tool does not fit the place.
BLOCKING = frozenset({SurfaceReason.POLICY_BLOCKED, SurfaceReason.ROLE_NOT_ALLOWED})


@dataclass(frozen=True, slots=True)
class SurfaceEnvironment:
    """What is there. What is unsaid is not, but for the model: while it is unknown, no tool is left out for it."""

    features: frozenset[str] = frozenset()
    credentials: frozenset[str] = frozenset()
    model: str = ""
    model_capabilities: frozenset[str] = frozenset()
    call_chain: frozenset[ToolName] = frozenset()

    def missing_for(self, listing: Listing) -> tuple[SurfaceReason, str] | None:
        """Return what the place lacks for a tool, but for the call chain, which is about names."""
        features = sorted(set(listing.feature_gates) - self.features)
        if features:
            return SurfaceReason.FEATURE_DISABLED, ",".join(features)
        credentials = sorted(set(listing.credentials) - self.credentials)
        if credentials:
            return SurfaceReason.CREDENTIAL_MISSING, ",".join(credentials)
        offered = {self.model, *self.model_capabilities}
        if listing.model_support and self.model and not offered & set(listing.model_support):
            return SurfaceReason.MODEL_UNSUPPORTED, self.model
        return None


@dataclass(frozen=True, slots=True)
class WithheldTool:
    """A tool that is not offered, why, and what exactly is missing."""

    listing: Listing
    reason: SurfaceReason
    detail: str


@dataclass(frozen=True, slots=True)
class Category:
    """Tools that belong together, and what they are worth for the task."""

    name: str
    tools: int
    utility: float


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Where every tool stands for one task in one place."""

    usable: int
    useful: Sequence[Hit]
    """Usable tools, the most useful first, as many as anything is made of."""
    members: Sequence[Listing]
    """The tools that an index lists: all, or those of the best categories."""
    categories: Sequence[Category]
    """Empty while one list holds all tools."""
    listed: frozenset[str]
    """The categories whose tools are among the members."""
    withheld: Sequence[WithheldTool]
    """The most useful of those that are not usable."""
    blocked: int
    excluded: int
    filtered: int
