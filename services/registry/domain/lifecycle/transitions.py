"""What a change of state leaves behind, and who asks for one."""

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
    """Who wants something done to a version, why, and on which state of it the wish was formed."""

    actor: Actor
    reason: str = ""
    etag: str = ""
    """Empty means whatever the version is now."""
    request_id: str = ""
    """Empty means that a repetition is another wish."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of one version, as it is kept for good."""

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
    """A part of a history, newest first, and where it continues; an empty token ends it."""

    transitions: Sequence[Transition]
    next_token: str
