"""The versions there are, by name, and which of them a reference means."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from libs.common.errors import MeshError
from libs.common.runtime.clock import Clock
from libs.common.semver import Constraint
from libs.common.tool_names import ToolName
from services.executor.adapters.registry.compile_tool import Entry
from services.executor.domain import errors
from services.executor.domain.tool import Tool

# Callers invent references; only so many answers are remembered.
_REMEMBERED = 10_000
# In this order. A deferred version runs like any other; only its schema is shown later.
_MAY_RUN = (frozenset({"AVAILABLE", "DEFERRED"}), frozenset({"DEPRECATED"}))
_PAST_SUNSET = frozenset({"SUNSET", "RETIRED"})


class Catalog:
    """Answers like the registry's ResolveTool, from memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._by_tool: dict[ToolName, dict[str, Entry]] = {}
        self._aliases: dict[ToolName, ToolName] | None = None
        self._resolved: dict[tuple[str, str], Tool] = {}
        self._listeners: list[Callable[[str], None]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Entry | None:
        """Return the version of this resource name."""
        return self._entries.get(name)

    def listen(self, listener: Callable[[str], None]) -> None:
        """Tell the listener the digest of every version that changes from now on, or goes. A mere repetition is no change."""
        self._listeners.append(listener)

    def put(self, entry: Entry) -> None:
        """Take in a version that is new or changed."""
        known = self._entries.get(entry.name)
        if known is not None and _facts(known) != _facts(entry):
            self._tell(known)
        self._entries[entry.name] = entry
        self._by_tool.setdefault(entry.tool_name, {})[entry.name] = entry
        self._changed()

    def drop(self, name: str) -> None:
        """Forget a version."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self._tell(entry)
        versions = self._by_tool[entry.tool_name]
        del versions[name]
        if not versions:
            del self._by_tool[entry.tool_name]
        self._changed()

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget every version that is not among these."""
        for name in self._entries.keys() - set(names):
            self.drop(name)

    def resolve(self, reference: str, constraint: str) -> Tool:
        """Return the highest version that is meant and may run; one that is not deprecated comes first."""
        known = self._resolved.get((reference, constraint))
        if known is not None:
            return known
        tool, lasting = self._search(reference, constraint)
        if lasting:
            if len(self._resolved) >= _REMEMBERED:
                self._resolved.clear()
            self._resolved[reference, constraint] = tool
        return tool

    def _search(self, reference: str, constraint: str) -> tuple[Tool, bool]:
        name = ToolName.parse(reference)
        entries = self._versions(name)
        if not entries:
            raise errors.tool_not_found(name.qualified)
        meant = _meant(entries, constraint)
        if not meant:
            raise errors.version_not_found(name.qualified, constraint or "latest")
        for states in _MAY_RUN:
            found = next((entry for entry in meant if self._state(entry) in states), None)
            if found is not None and found.tool is not None:
                # A deprecated version ends by the clock, without another event.
                return found.tool, found.sunset_at is None
            if found is not None:
                raise self._why_not(found)
        raise self._why_not(meant[0])

    def _why_not(self, entry: Entry) -> MeshError:
        state = self._state(entry)
        if state in _PAST_SUNSET:
            return errors.tool_past_sunset(entry.name, entry.successor)
        return errors.tool_unavailable(
            entry.name, "broken" if entry.tool is None else state.lower(), entry.state_reason
        )

    def _versions(self, name: ToolName) -> list[Entry]:
        """The versions of a tool, found by its own name before any alias."""
        if name not in self._by_tool:
            if self._aliases is None:
                self._aliases = {
                    ToolName(entry.tool_name.namespace, alias): entry.tool_name
                    for entry in sorted(self._entries.values(), key=lambda e: e.name, reverse=True)
                    for alias in entry.aliases
                }
            name = self._aliases.get(name, name)
        return list(self._by_tool.get(name, {}).values())

    def _state(self, entry: Entry) -> str:
        over = entry.sunset_at is not None and entry.sunset_at <= self._clock.now().timestamp()
        return "SUNSET" if over and entry.state == "DEPRECATED" else entry.state

    def _changed(self) -> None:
        self._resolved.clear()
        self._aliases = None

    def _tell(self, entry: Entry) -> None:
        for listener in self._listeners:
            listener(entry.digest)


def _facts(entry: Entry) -> tuple[str, str, str]:
    return entry.digest, entry.state, entry.state_reason


def _meant(entries: Iterable[Entry], constraint: str) -> list[Entry]:
    """The versions that a constraint accepts, the highest first."""
    meant = Constraint.parse(constraint).means
    return sorted((entry for entry in entries if meant(entry.version)), key=lambda entry: entry.version, reverse=True)
