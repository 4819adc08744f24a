"""A WatchTools client that applies every event and keeps the last token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolmesh.registry.v1 import registry_service_pb2 as pb


@dataclass
class WatchClient:
    """The versions that a watcher holds."""

    versions: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    kinds: list[str] = field(default_factory=list)
    """The kind of every event of the current watch, including heartbeats, but for trust and health."""
    trusts: dict[str, Any] = field(default_factory=dict)
    """The trust in each tool that was reported by itself."""
    healths: dict[str, Any] = field(default_factory=dict)
    """The health of each version that was reported by itself."""
    applied: list[str] = field(default_factory=list)
    """The names of all versions from changes, not from snapshots."""
    aliases: dict[str, list[str]] = field(default_factory=dict)
    """The aliases of the tool of each version."""
    _mentioned: set[str] = field(default_factory=set)

    def open(self, stub: Any) -> Any:
        """Open a watch at the last token."""
        self.kinds, self._mentioned = [], set()
        return stub.WatchTools(pb.WatchToolsRequest(resume_token=self.token))

    async def follow(self, watch: Any, until: Callable[[WatchClient], bool]) -> None:
        """Apply events until the condition holds."""
        while not until(self):
            self.apply(await watch.read())

    def apply(self, step: pb.WatchToolsResponse) -> None:
        """Apply one event."""
        kind = step.WhichOneof("event")
        assert kind is not None
        self.token = step.resume_token
        if kind == "trusts":
            self.trusts |= {trust.tool: trust for trust in step.trusts.tools}
            return
        if kind == "healths":
            self.healths |= {health.version: health for health in step.healths.versions}
            return
        self.kinds.append(kind)
        if kind == "upserted":
            # Only watches carry aliases, and trust and health change with time; the rest equals other responses.
            self.aliases[step.upserted.name] = list(step.upserted.aliases.tool_ids)
            step.upserted.ClearField("aliases")
            step.upserted.ClearField("trust")
            step.upserted.ClearField("health")
            self.versions[step.upserted.name] = step.upserted
            self._mentioned.add(step.upserted.name)
            if step.resume_token:
                self.applied.append(step.upserted.name)
        elif kind == "removed":
            self.versions.pop(step.removed, None)
            self._mentioned.discard(step.removed)
        elif kind == "snapshot_complete":
            self.versions = {name: v for name, v in self.versions.items() if name in self._mentioned}


def complete(view: WatchClient) -> bool:
    """Return whether the snapshot is complete."""
    return "snapshot_complete" in view.kinds


def holds(count: int) -> Callable[[WatchClient], bool]:
    """Return a condition: the client has at least this many versions."""
    return lambda view: len(view.versions) >= count


def alive(view: WatchClient) -> bool:
    """Return whether the watch has sent a heartbeat."""
    return "heartbeat" in view.kinds
