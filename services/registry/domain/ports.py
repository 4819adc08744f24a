"""The ports of the registry domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from libs.common.errors import Violation
from libs.common.json.jsonio import JsonValue
from libs.common.tool_names import ToolName
from services.registry.domain.catalog.changes import Change, ChangeBatch, Horizon, Position
from services.registry.domain.lifecycle.transitions import Transition
from services.registry.domain.model import Tool, ToolVersion, Usability, VersionHead
from services.registry.domain.namespaces.ownership import Namespace
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.lookalikes import CandidateNames, KnownName
from services.registry.domain.trust.look_alikes import AlikePair


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem inside a JSON value: JSON Pointer, keyword, and a message that does not quote the value."""

    pointer: str
    keyword: str
    message: str


class SchemaChecker(Protocol):
    """Validates with JSON Schema 2020-12. Never fetches references."""

    def schema_findings(self, schema: JsonValue) -> Sequence[Finding]:
        """Return why a value is not a valid schema; empty if it is. References to other documents are findings."""
        ...

    def value_findings(self, schema: Mapping[str, Any], value: JsonValue) -> Sequence[Finding]:
        """Return where a value violates a valid schema; empty if it does not."""
        ...


class KnownNames(Protocol):
    """The names of all tools."""

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool of a name."""
        ...

    async def similar_names(self, candidate: CandidateNames, *, since: int = 0) -> Sequence[KnownName]:
        """Return the names that may resemble the candidate's; a superset of those that do. With `since`, only those of
        tools that changed after this change number, and all namespaces."""
        ...


class Ledger(KnownNames, Protocol):
    """The registry under the writer lock: data that is read here does not change before the commit."""

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool with exactly this name."""
        ...

    async def heads(self, name: ToolName) -> Sequence[VersionHead]:
        """Return the versions of a tool."""
        ...

    async def namespace(self, namespace: str) -> Namespace | None:
        """Return a namespace; None if it has no owner."""
        ...

    async def put_namespace(self, namespace: Namespace, by: str) -> None:
        """Store a namespace with exactly these delegates."""
        ...

    async def namespaces_among(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these names are namespaces."""
        ...

    async def holders(self, names: Iterable[ToolName]) -> Mapping[ToolName, ToolName]:
        """Return the tool of each name or alias; unknown names are missing."""
        ...

    async def next_sequence(self) -> int:
        """Return the number of the next change."""
        ...

    async def add(self, version: ToolVersion, tool: Tool, *, registered_through: str) -> None:
        """Store a new version, its updated tool, the change and the initial transition."""
        ...

    async def add_warnings(self, head: VersionHead, warnings: Sequence[Violation]) -> None:
        """Store the scan warnings of a version."""
        ...

    async def add_alike_pairs(self, pairs: Iterable[AlikePair]) -> None:
        """Store pairs of names that are alike; a pair that is stored stays as it is."""
        ...

    async def manifest(self, head: VersionHead) -> Manifest:
        """Return the manifest of a version."""
        ...

    async def update_standing(self, head: VersionHead, transition: Transition) -> None:
        """Store the standing of a version, the change and the transition."""
        ...

    async def put_tool(self, tool: Tool) -> None:
        """Store a tool and its new aliases. Existing names keep their target."""
        ...

    async def point_alias(self, alias: ToolName, tool: ToolName) -> None:
        """Point an alias to another tool."""
        ...

    async def verb_of(self, head: VersionHead, actor: str, request_id: str) -> str | None:
        """Return the verb that a request of this actor applied to the version; None for a new request."""
        ...

    async def revoked(self, tool: ToolName) -> bool:
        """Return whether the tool is revoked."""
        ...

    async def revoke(self, tool: ToolName, actor: str, reason: str, now: datetime, sequence: int) -> bool:
        """Mark the tool as revoked since a change number; False if it already was."""
        ...

    async def reinstate(self, tool: ToolName, now: datetime) -> int | None:
        """Remove the mark, and return the number of its first change; None if there was no mark."""
        ...

    async def versions_changed_by(self, tool: ToolName, verb: str, since: int) -> frozenset[str]:
        """Return the versions that a verb was applied to since a change number."""
        ...


class Catalogue(KnownNames, Protocol):
    """All admitted tools and versions."""

    async def last_change(self) -> int:
        """Return the number of the last committed change."""
        ...

    def writing(self) -> AbstractAsyncContextManager[Ledger]:
        """Lock the registry for one change across all replicas, and commit it at the end or not at all."""
        ...

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool of a name or an alias."""
        ...

    async def tools(self, *, namespace: str, tags: Sequence[str], after: str, limit: int) -> Sequence[Tool]:
        """Return tools after a qualified name, sorted by name."""
        ...

    async def heads(self, names: Sequence[ToolName]) -> Sequence[VersionHead]:
        """Return all versions of these tools, without their manifests."""
        ...

    async def with_manifests(self, heads: Sequence[VersionHead]) -> Sequence[ToolVersion]:
        """Return the versions with their manifests, in the order given."""
        ...

    async def warnings(self, head: VersionHead) -> Sequence[Violation]:
        """Return the scan warnings of a version."""
        ...

    async def owner_of(self, namespace: str) -> str | None:
        """Return the owner of a namespace; None if it has none."""
        ...


class CallPolicy(Protocol):
    """Decides which versions the current caller may call, by its token and by policy."""

    async def usability_of(self, heads: Sequence[VersionHead]) -> Sequence[Usability]:
        """Return one answer for each version, in order. Raises SERVICE_UNAVAILABLE when authz does not answer."""
        ...


class ChangeLog(Protocol):
    """The committed changes by number, within the retention of the log."""

    async def horizon(self) -> Horizon:
        """Return the current range of the log."""
        ...

    async def since(self, sequence: int, limit: int) -> ChangeBatch:
        """Return up to `limit` changes after a number, in order, and the horizon at that time."""
        ...

    async def unchanged(self, *, after: int, until: int, limit: int) -> Sequence[ToolVersion]:
        """Return versions whose last change is in (after, until], in order of that number."""
        ...


class ChangeFeed(Protocol):
    """Follows the change log, with one reader for all watchers of a process."""

    def last_position(self) -> Position | None:
        """Return the last polled position of the log; None when the last poll is too old."""
        ...

    async def changes_after(self, position: Position) -> Sequence[Change]:
        """Return the changes after a position. If there are none, wait for the next poll; an empty result means that
        there are still none. Raises SERVICE_UNAVAILABLE when the log cannot be followed from there."""
        ...


class Wakeup(Protocol):
    """Notifies all replicas of a change."""

    def notify(self) -> None:
        """Notify without blocking and without raising."""
        ...


class Histories(Protocol):
    """Reads transitions, namespaces and versions that are due."""

    async def transitions(self, tool: ToolName, version: str, before: int, limit: int) -> Sequence[Transition]:
        """Return the transitions of a tool, or of one version, newest first, before a number."""
        ...

    async def namespace(self, namespace: str) -> Namespace | None:
        """Return a namespace; None if it has no owner."""
        ...

    async def namespaces(self, after: str, limit: int) -> Sequence[Namespace]:
        """Return namespaces after a name, sorted by name."""
        ...

    async def past_sunset(self, now: datetime, limit: int) -> Sequence[str]:
        """Return the resource names of deprecated versions past their sunset date."""
        ...

    async def past_grace(self, now: datetime, limit: int) -> Sequence[str]:
        """Return the resource names of versions past their grace period."""
        ...
