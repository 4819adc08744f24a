"""The environment of a surface, and the reasons why a tool is not on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from libs.common.tool_names import ToolName
from services.registry.domain.discovery.results import Hit, Listing
from services.registry.domain.model import LifecycleState, VersionHead
from services.registry.domain.runners.announcement import RunnerSet


class SurfaceReason(StrEnum):
    """Why a tool is not, or not fully, on a surface, in the terms of the Agent Tool standard."""

    POLICY_BLOCKED = "policy_blocked"
    CREDENTIAL_MISSING = "credential_missing"
    SETUP_REQUIRED = "setup_required"
    MODEL_UNSUPPORTED = "model_unsupported"
    RECURSIVE_TOOL_FORBIDDEN = "recursive_tool_forbidden"
    ROLE_NOT_ALLOWED = "role_not_allowed"
    FEATURE_DISABLED = "feature_disabled"
    DEFERRED_UNTIL_DISCOVERED = "deferred_until_discovered"
    NO_RUNNER = "no_runner"


# States that keep a tool off a surface with a reason. Tools in other states that are not callable are not mentioned.
BY_STATE: Mapping[LifecycleState, SurfaceReason] = {
    LifecycleState.QUARANTINED: SurfaceReason.POLICY_BLOCKED,
    LifecycleState.DISABLED: SurfaceReason.FEATURE_DISABLED,
    LifecycleState.REQUIRES_SETUP: SurfaceReason.SETUP_REQUIRED,
}
# Reasons that concern the caller's permission; all others concern the environment.
BLOCKING = frozenset({SurfaceReason.POLICY_BLOCKED, SurfaceReason.ROLE_NOT_ALLOWED})


@dataclass(frozen=True, slots=True)
class SurfaceEnvironment:
    """The environment of a surface. Unset features and credentials count as absent; an unset model filters nothing."""

    features: frozenset[str] = frozenset()
    credentials: frozenset[str] = frozenset()
    model: str = ""
    model_capabilities: frozenset[str] = frozenset()
    call_chain: frozenset[ToolName] = frozenset()
    runners: RunnerSet | None = None
    """What executors can run; None leaves out the question."""

    def missing_for(self, listing: Listing) -> tuple[SurfaceReason, str] | None:
        """Return what the environment lacks for a tool, and the reason. The call chain is checked elsewhere."""
        features = sorted(set(listing.feature_gates) - self.features)
        if features:
            return SurfaceReason.FEATURE_DISABLED, ",".join(features)
        credentials = sorted(set(listing.credentials) - self.credentials)
        if credentials:
            return SurfaceReason.CREDENTIAL_MISSING, ",".join(credentials)
        offered = {self.model, *self.model_capabilities}
        if listing.model_support and self.model and not offered & set(listing.model_support):
            return SurfaceReason.MODEL_UNSUPPORTED, self.model
        missing = self.runners.missing(listing.need) if self.runners is not None else None
        return (SurfaceReason.NO_RUNNER, missing.message) if missing else None


@dataclass(frozen=True, slots=True)
class WithheldTool:
    """A tool that is not offered, the reason, and the missing items."""

    listing: Listing
    reason: SurfaceReason
    detail: str


@dataclass(frozen=True, slots=True)
class Category:
    """A group of tools and their utility for the task."""

    name: str
    tools: int
    utility: float


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The eligibility of every tool for one task in one environment."""

    usable: int
    useful: Sequence[Hit]
    """Usable tools, most useful first, up to a limit."""
    members: Sequence[Listing]
    """The tools that an index lists: all, or those of the best categories."""
    categories: Sequence[Category]
    """Empty while one list holds all tools."""
    listed: frozenset[str]
    """The categories whose tools are among the members."""
    withheld: Sequence[WithheldTool]
    """The most useful tools that are not usable."""
    blocked: int
    excluded: int
    filtered: int
    need_approval: frozenset[ToolName] = frozenset()
    """The members that the caller may call only with an approval."""
    candidates: Sequence[VersionHead] = ()
    """The versions to ask policy about, the most useful first, up to a limit; none once it was asked."""
