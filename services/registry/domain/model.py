"""What the registry keeps: tools, their versions, and the life of each version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.registry.domain.publishing.manifest import Manifest


class LifecycleState(StrEnum):
    """Where a version is in its life."""

    DRAFT = "draft"
    AVAILABLE = "available"
    DISABLED = "disabled"
    REQUIRES_SETUP = "requires_setup"
    DEFERRED = "deferred"
    DEPRECATED = "deprecated"
    SUNSET = "sunset"
    RETIRED = "retired"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Deprecation:
    """Announces the end of a version and the way onward."""

    deprecate_time: datetime
    sunset_time: datetime | None = None
    successor: str = ""
    migration_guide_url: str = ""
    remove_time: datetime | None = None
    """When it may be retired, if nobody calls it any more."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The part of a version that verbs change, and the number of the change that made it so."""

    state: LifecycleState
    update_time: datetime
    sequence: int
    state_reason: str = ""
    deprecation: Deprecation | None = None
    beneath: tuple[LifecycleState, ...] = ()
    """What the state covers, and the version returns to when it is lifted; the next one last."""

    @property
    def etag(self) -> str:
        """Differs after every change, because no two changes share a number."""
        return f"{self.sequence:x}"


@dataclass(frozen=True, slots=True)
class VersionHead:
    """Everything about a version but its manifest, which is most of its bytes."""

    tool: ToolName
    version: Version
    digest: str
    size: int
    """How many bytes its manifest has as a document."""
    create_time: datetime
    registered_by: str
    standing: Standing

    @property
    def name(self) -> str:
        """The resource name."""
        return self.tool.version(str(self.version))


@dataclass(frozen=True, slots=True)
class ToolVersion:
    """One immutable manifest and where it stands. The manifest is None where an answer had no room for it."""

    head: VersionHead
    manifest: Manifest | None
    aliases: tuple[str, ...] | None = None
    """What leads to its tool now, where that was read; manifests name aliases that may have moved since."""


@dataclass(frozen=True, slots=True)
class Tool:
    """The identity behind versions."""

    name: ToolName
    provider: str
    title: str
    tags: tuple[str, ...]
    latest_version: str
    """The highest version that may be chosen for new work; empty when there is none."""
    aliases: tuple[str, ...]
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True, slots=True)
class Actor:
    """Who registers: the peer at the other end, and the subject it acts for, empty when it acts for itself."""

    peer: str
    subject: str = ""

    @property
    def recorded(self) -> str:
        """The name that the version keeps. A subject is a DID, so the bare name of a peer cannot be taken for one."""
        return self.subject or self.peer
