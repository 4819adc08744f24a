"""The entities of the registry: tools, versions and their lifecycle state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.registry.domain.publishing.manifest import Manifest


class LifecycleState(StrEnum):
    """The lifecycle state of a version."""

    DRAFT = "draft"
    AVAILABLE = "available"
    DISABLED = "disabled"
    REQUIRES_SETUP = "requires_setup"
    DEFERRED = "deferred"
    DEPRECATED = "deprecated"
    SUNSET = "sunset"
    RETIRED = "retired"
    QUARANTINED = "quarantined"


class Usability(StrEnum):
    """Whether a caller may call a version, before the arguments are known."""

    ALLOWED = "allowed"
    NEEDS_APPROVAL = "needs_approval"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The announced end of a version and its successor."""

    deprecate_time: datetime
    sunset_time: datetime | None = None
    successor: str = ""
    migration_guide_url: str = ""
    remove_time: datetime | None = None
    """When the version may be retired if it is unused."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The mutable part of a version, and the number of the change that set it."""

    state: LifecycleState
    update_time: datetime
    sequence: int
    state_reason: str = ""
    deprecation: Deprecation | None = None
    beneath: tuple[LifecycleState, ...] = ()
    """The covered states, to which the version returns when its state is lifted; the next one last."""

    @property
    def etag(self) -> str:
        """Differs after every change, because change numbers are unique."""
        return f"{self.sequence:x}"


@dataclass(frozen=True, slots=True)
class VersionHead:
    """A version without its manifest, which makes up most of its size."""

    tool: ToolName
    version: Version
    digest: str
    size: int
    """The size of the manifest document in bytes."""
    create_time: datetime
    registered_by: str
    standing: Standing

    @property
    def name(self) -> str:
        """The resource name."""
        return self.tool.version(str(self.version))


@dataclass(frozen=True, slots=True)
class ToolVersion:
    """A version with its immutable manifest. The manifest is None where the response had no room for it."""

    head: VersionHead
    manifest: Manifest | None
    aliases: tuple[str, ...] | None = None
    """The current aliases of its tool, where they were read. Aliases in the manifest may have moved since."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, independent of its versions."""

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
    """The caller of a change: the peer, and the subject it acts for; empty when the peer acts for itself."""

    peer: str
    subject: str = ""
    tenant: str = ""
    """The tenant of the subject's token; empty for a peer and for a token without a tenant."""

    @property
    def recorded_name(self) -> str:
        """The name to record. A subject is a DID, so it cannot be confused with the bare name of a peer."""
        return self.subject or self.peer
