"""The trust in a tool as policies see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from libs.common.auth.peers import OPERATOR, SERVICES
from libs.common.tool_names import ToolName
from services.registry.domain.trust.look_alikes import LookAlike
from services.registry.domain.trust.stages import Stage


@dataclass(frozen=True, slots=True)
class ToolTrust:
    """The score of a tool and what else is known of it."""

    tool: ToolName
    score: int = 0
    """0 to 100; 0 until one was computed."""
    compute_time: datetime | None = None
    stage: Stage = Stage.SUBMITTED
    publisher_verified: bool = False
    look_alikes: tuple[LookAlike, ...] = ()
    """Names of other owners that are easily taken for the tool's."""


def percent(score: float) -> int:
    """Return a score of 0 to 1 as whole hundredths, rounded down: no tool gets more trust than it has."""
    return min(max(int(score * 100 + 1e-9), 0), 100)


def is_known_publisher(owner: str, identity_verified: bool) -> bool:
    """Return whether the publisher of a namespace is known: the mesh itself, or a provider with a verified identity."""
    return identity_verified or owner == OPERATOR or owner in SERVICES
