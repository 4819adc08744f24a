"""What the domain needs from the world."""

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
from services.registry.domain.model import Tool, ToolVersion, VersionHead
from services.registry.domain.namespaces.ownership import Namespace
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.lookalikes import CandidateNames, KnownName


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong inside a JSON value: where, which keyword says so, and a sentence without the value."""

    pointer: str
    keyword: str
    message: str


class SchemaChecker(Protocol):
    """Knows JSON Schema 2020-12. Fetches nothing, whatever a schema refers to."""

    def schema_findings(self, schema: JsonValue) -> Sequence[Finding]:
        """Return what keeps a value from being a schema; nothing if it is one. What refers to another document is none."""
        ...

    def value_findings(self, schema: Mapping[str, Any], value: JsonValue) -> Sequence[Finding]:
        """Return where a value breaks a valid schema; nothing if it does not."""
        ...


class Ledger(Protocol):
    """The registry while one writer holds it: what is read here cannot change before it is written."""

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool of exactly this name."""
        ...

    async def heads(self, name: ToolName) -> Sequence[VersionHead]:
        """Return the versions of a tool."""
        ...

    async def namespace(self, namespace: str) -> Namespace | None:
        """Return a namespace; None while nobody owns it."""
        ...

    async def put_namespace(self, namespace: Namespace, by: str) -> None:
        """Store a namespace as it now is, with exactly these delegates."""
        ...

    async def namespaces_among(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these words are namespaces."""
        ...

    async def holders(self, names: Iterable[ToolName]) -> Mapping[ToolName, ToolName]:
        """Return the tool that each name leads to; names that lead nowhere are missing."""
        ...

    async def next_sequence(self) -> int:
        """Return the number of the change that this writer makes."""
        ...

    async def add(self, version: ToolVersion, tool: Tool, *, registered_through: str) -> None:
        """Store a new version, its tool as it now is, the change, and the transition that begins its history."""
        ...

    async def add_warnings(self, head: VersionHead, warnings: Sequence[Violation]) -> None:
        """Store what the scan let pass when this version was admitted."""
        ...

    async def manifest(self, head: VersionHead) -> Manifest:
        """Return the manifest of a version."""
        ...

    async def update_standing(self, head: VersionHead, transition: Transition) -> None:
        """Store where a version stands now, the change, and the transition."""
        ...

    async def put_tool(self, tool: Tool) -> None:
        """Store a tool as it now is. Names that lead to it go on doing so; new aliases of it begin to."""
        ...

    async def point_alias(self, alias: ToolName, tool: ToolName) -> None:
        """Make an alias lead to another tool."""
        ...

    async def verb_of(self, head: VersionHead, actor: str, request_id: str) -> str | None:
        """Return what this request of this actor did to the version; None if it was not there before."""
        ...

    async def revoked(self, tool: ToolName) -> bool:
        """Say whether the tool is revoked."""
        ...

    async def revoke(self, tool: ToolName, actor: str, reason: str, now: datetime, sequence: int) -> bool:
        """Mark the tool as revoked by the changes from this number on; False if it already was."""
        ...

    async def reinstate(self, tool: ToolName) -> int | None:
        """Take the mark away, and return the number of its first change; None if there was none."""
        ...

    async def versions_moved(self, tool: ToolName, verb: str, since: int) -> frozenset[str]:
        """Return the numbers of the versions that a verb was done to, from a change on."""
        ...


class Catalogue(Protocol):
    """Everything that was admitted."""

    def writing(self) -> AbstractAsyncContextManager[Ledger]:
        """Hold the registry for one change, alone among all replicas; all of it is stored at the end, or nothing."""
        ...

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool that a name or an alias leads to."""
        ...

    async def tools(self, *, namespace: str, tags: Sequence[str], after: str, limit: int) -> Sequence[Tool]:
        """Return tools in order of their qualified names, beginning after one."""
        ...

    async def heads(self, names: Sequence[ToolName]) -> Sequence[VersionHead]:
        """Return all versions of these tools, without their manifests."""
        ...

    async def with_manifests(self, heads: Sequence[VersionHead]) -> Sequence[ToolVersion]:
        """Return the versions with their manifests, in the order given."""
        ...

    async def warnings(self, head: VersionHead) -> Sequence[Violation]:
        """Return what the scan let pass when this version was admitted."""
        ...

    async def owner_of(self, namespace: str) -> str | None:
        """Return who owns a namespace; None while nobody does."""
        ...

    async def similar_names(self, candidate: CandidateNames) -> Sequence[KnownName]:
        """Return the names that a newcomer's may be taken for; more than those may come, and no fewer."""
        ...


class Usability(Protocol):
    """Knows what the caller that is being served may use."""

    async def usable(self, versions: Sequence[ToolVersion]) -> Sequence[bool]:
        """Return an answer a version, in their order. Raises SERVICE_UNAVAILABLE when nobody can say."""
        ...


class ChangeLog(Protocol):
    """Every committed change under its number, as far back as it is kept."""

    async def horizon(self) -> Horizon:
        """Return how far the log reaches now."""
        ...

    async def since(self, sequence: int, limit: int) -> ChangeBatch:
        """Return up to `limit` changes after a number, in order, and the horizon they were read under."""
        ...

    async def unchanged(self, *, after: int, until: int, limit: int) -> Sequence[ToolVersion]:
        """Return versions whose last change has a number in (after, until], in order of that number."""
        ...


class ChangeFeed(Protocol):
    """The changes of the log as they come, read once for all watchers of a process."""

    def last_position(self) -> Position | None:
        """Return how far the log was last seen to reach; None when it was not looked at lately."""
        ...

    async def changes_after(self, position: Position) -> Sequence[Change]:
        """Return what follows a position. If nothing does, wait until the log was looked at again: an empty answer
        means that it still says nothing new. Raises when the log cannot be followed from there."""
        ...


class Wakeup(Protocol):
    """Tells every replica that something changed."""

    def notify(self) -> None:
        """Ring, without waiting and without failing."""
        ...


class Histories(Protocol):
    """What was done to versions, who owns what, and which versions are due."""

    async def transitions(self, tool: ToolName, version: str, before: int, limit: int) -> Sequence[Transition]:
        """Return what was done to a tool, or to one version of it, newest first, before a number."""
        ...

    async def namespace(self, namespace: str) -> Namespace | None:
        """Return a namespace; None while nobody owns it."""
        ...

    async def namespaces(self, after: str, limit: int) -> Sequence[Namespace]:
        """Return namespaces in order of their names, beginning after one."""
        ...

    async def past_sunset(self, now: datetime, limit: int) -> Sequence[str]:
        """Return the resource names of deprecated versions whose date has passed."""
        ...

    async def past_grace(self, now: datetime, limit: int) -> Sequence[str]:
        """Return the resource names of ended versions whose grace period is over."""
        ...
