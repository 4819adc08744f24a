"""The registered tool versions by name, and the resolution of references to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from libs.common.errors import MeshError
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from libs.common.semver import Constraint
from libs.common.tool_names import ToolName
from services.executor.adapters.registry.compile_tool import CatalogEntry
from services.executor.domain import errors
from services.executor.domain.tool import Tool, ToolTrust, VersionIdentity

# Bounded, because callers choose the references.
_CACHE_SIZE = 10_000
# States that may run, in order of preference. A deferred version runs too; only its schema is published later.
_RUNNABLE = (frozenset({"AVAILABLE", "DEFERRED"}), frozenset({"DEPRECATED"}))
_PAST_SUNSET = frozenset({"SUNSET", "RETIRED"})
_QUARANTINED = "QUARANTINED"
# States that end the running calls of a version too.
_WITHDRAWN = frozenset({_QUARANTINED, "RETIRED"})


class Catalog:
    """Resolves references like the registry's ResolveTool, from memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, CatalogEntry] = {}
        self._by_tool: dict[ToolName, dict[str, CatalogEntry]] = {}
        self._aliases: dict[ToolName, ToolName] | None = None
        self._resolved: BoundedCache[tuple[str, str], Tool] = BoundedCache(_CACHE_SIZE)
        self._listeners: list[Callable[[str], None]] = []
        self._withdrawal_listeners: list[Callable[[errors.ToolUnavailableError], None]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> CatalogEntry | None:
        """Return the version with this resource name."""
        return self._entries.get(name)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the digest of every version that changes or is removed.

        A repetition is not a change.
        """
        self._listeners.append(listener)

    def listen_withdrawn(self, listener: Callable[[errors.ToolUnavailableError], None]) -> None:
        """Call the listener for every version that is quarantined, retired or removed, with the error of its calls."""
        self._withdrawal_listeners.append(listener)

    def put(self, entry: CatalogEntry) -> None:
        """Add or replace a version."""
        former = self._entries.get(entry.name)
        if former is not None and _identity(former) != _identity(entry):
            self._notify(former)
        self._entries[entry.name] = entry
        self._by_tool.setdefault(entry.tool_name, {})[entry.name] = entry
        self._invalidate()
        if former is not None and entry.state in _WITHDRAWN and former.state not in _WITHDRAWN:
            self._notify_withdrawn(entry, entry.state.lower())

    def set_trust(self, tool_name: ToolName, trust: ToolTrust) -> None:
        """Set the trust in a tool, for every version of it. An unknown tool is ignored: it comes with its trust."""
        for entry in list(self._by_tool.get(tool_name, {}).values()):
            if entry.tool is not None and entry.tool.trust != trust:
                self._replace_tool(entry, replace(entry.tool, trust=trust))

    def set_health(self, name: str, health: str) -> None:
        """Set the health of a version. An unknown one is ignored: it comes with its health."""
        entry = self._entries.get(name)
        if entry is not None and entry.tool is not None and entry.tool.health != health:
            self._replace_tool(entry, replace(entry.tool, health=health))

    def _replace_tool(self, entry: CatalogEntry, tool: Tool) -> None:
        self._entries[entry.name] = self._by_tool[entry.tool_name][entry.name] = replace(entry, tool=tool)
        self._resolved.clear()

    def remove(self, name: str) -> None:
        """Remove a version."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self._notify(entry)
        versions = self._by_tool[entry.tool_name]
        del versions[name]
        if not versions:
            del self._by_tool[entry.tool_name]
        self._invalidate()
        self._notify_withdrawn(entry, "removed")

    def retain(self, names: Iterable[str]) -> None:
        """Remove every version that is not among these."""
        for name in self._entries.keys() - set(names):
            self.remove(name)

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Return the highest matching version that may run; versions that are not deprecated take precedence."""
        cached = self._resolved.get((reference, constraint))
        if cached is not None:
            return cached
        tool, is_cacheable = self._search(reference, constraint)
        return self._resolved.put((reference, constraint), tool) if is_cacheable else tool

    def _search(self, reference: str, constraint: str) -> tuple[Tool, bool]:
        name = ToolName.parse(reference)
        entries = self._versions(name)
        if not entries:
            raise errors.tool_not_found(name.qualified)
        matching = _matching(entries, constraint)
        if not matching:
            raise errors.version_not_found(name.qualified, constraint or "latest")
        for states in _RUNNABLE:
            entry = next((entry for entry in matching if self._state(entry) in states), None)
            held = next((newer for newer in matching if newer.state == _QUARANTINED), None)
            if entry is not None and held is not None and held.version.major > entry.version.major:
                # An older major is another contract, so a caller must ask for it.
                raise self._unavailable_error(held)
            if entry is not None and entry.tool is not None:
                # A version with a sunset time is not cached, because it ends without another event.
                return entry.tool, entry.sunset_at is None
            if entry is not None:
                raise self._unavailable_error(entry)
        raise self._unavailable_error(matching[0])

    def _unavailable_error(self, entry: CatalogEntry) -> MeshError:
        state, version = self._state(entry), VersionIdentity(entry.name, entry.digest)
        if state in _PAST_SUNSET:
            return errors.tool_past_sunset(version, entry.successor)
        shown = "broken" if entry.tool is None else state.lower()
        return errors.tool_unavailable(version, shown, entry.state_reason, successor=entry.successor)

    def _versions(self, name: ToolName) -> list[CatalogEntry]:
        """Return the versions of a tool. Its own name takes precedence over aliases."""
        if name not in self._by_tool:
            if self._aliases is None:
                self._aliases = {
                    ToolName(entry.tool_name.namespace, alias): entry.tool_name
                    for entry in sorted(self._entries.values(), key=lambda entry: entry.name, reverse=True)
                    for alias in entry.aliases
                }
            name = self._aliases.get(name, name)
        return list(self._by_tool.get(name, {}).values())

    def _state(self, entry: CatalogEntry) -> str:
        is_past = entry.sunset_at is not None and entry.sunset_at <= self._clock.now().timestamp()
        return "SUNSET" if is_past and entry.state == "DEPRECATED" else entry.state

    def _invalidate(self) -> None:
        self._resolved.clear()
        self._aliases = None

    def _notify(self, entry: CatalogEntry) -> None:
        for listener in self._listeners:
            listener(entry.digest)

    def _notify_withdrawn(self, entry: CatalogEntry, state: str) -> None:
        version = VersionIdentity(entry.name, entry.digest)
        for listener in self._withdrawal_listeners:
            listener(errors.tool_unavailable(version, state, entry.state_reason, successor=entry.successor))


def _identity(entry: CatalogEntry) -> tuple[str, str, str]:
    return entry.digest, entry.state, entry.state_reason


def _matching(entries: Iterable[CatalogEntry], constraint: str) -> list[CatalogEntry]:
    """Return the versions that a constraint accepts, the highest first."""
    accepts = Constraint.parse(constraint).means
    return sorted((entry for entry in entries if accepts(entry.version)), key=lambda entry: entry.version, reverse=True)
