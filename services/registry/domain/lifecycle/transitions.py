"""Change requests, and the transition records that they leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from libs.common.tool_names import ToolName
from services.registry.domain.model import Actor, LifecycleState

REGISTER = "register"
MOVE_ALIAS = "move_alias"


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A request to change a version: the actor, the reason, and the expected etag."""

    actor: Actor
    reason: str = ""
    etag: str = ""
    """Empty matches any state of the version."""
    request_id: str = ""
    """Empty disables deduplication of retries."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The permanent record of one change of one version."""

    sequence: int
    tool: ToolName
    version: str
    verb: str
    from_state: LifecycleState | None
    to_state: LifecycleState
    actor: str
    through: str
    reason: str
    time: datetime
    request_id: str = ""

    @property
    def name(self) -> str:
        """The resource name of the version."""
        return self.tool.version(self.version)


@dataclass(frozen=True, slots=True)
class TransitionPage:
    """One page of transitions, newest first. An empty token marks the last page."""

    transitions: Sequence[Transition]
    next_token: str
