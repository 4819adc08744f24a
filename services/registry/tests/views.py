"""A client of WatchTools as its contract describes one: applies every event, keeps the last token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolmesh.registry.v1 import registry_service_pb2 as pb


@dataclass
class View:
    """What a watcher holds of the registry."""

    versions: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    kinds: list[str] = field(default_factory=list)
    """The kind of every event of the present watch, heartbeats included."""
    applied: list[str] = field(default_factory=list)
    """The names of all versions that changes, not snapshots, have told."""
    aliases: dict[str, list[str]] = field(default_factory=dict)
    """What leads to the tool of each version."""
    _mentioned: set[str] = field(default_factory=set)

    def open(self, stub: Any) -> Any:
        """Open a watch where the last one ended."""
        self.kinds, self._mentioned = [], set()
        return stub.WatchTools(pb.WatchToolsRequest(resume_token=self.token))

    async def follow(self, watch: Any, until: Callable[[View], bool]) -> None:
        """Apply events until the condition holds."""
        while not until(self):
            self.apply(await watch.read())

    def apply(self, step: pb.WatchToolsResponse) -> None:
        """Apply one event."""
        kind = step.WhichOneof("event")
        assert kind is not None
        self.kinds.append(kind)
        self.token = step.resume_token
        if kind == "upserted":
            # Told by watches alone, so it is kept apart: what remains is what every other answer says, too.
            self.aliases[step.upserted.name] = list(step.upserted.aliases.tool_ids)
            step.upserted.ClearField("aliases")
            self.versions[step.upserted.name] = step.upserted
            self._mentioned.add(step.upserted.name)
            if step.resume_token:
                self.applied.append(step.upserted.name)
        elif kind == "removed":
            self.versions.pop(step.removed, None)
            self._mentioned.discard(step.removed)
        elif kind == "snapshot_complete":
            self.versions = {name: v for name, v in self.versions.items() if name in self._mentioned}


def complete(view: View) -> bool:
    """The snapshot is over."""
    return "snapshot_complete" in view.kinds


def holds(count: int) -> Callable[[View], bool]:
    """The view has this many versions."""
    return lambda view: len(view.versions) >= count


def alive(view: View) -> bool:
    """The watch has told that nothing happened."""
    return "heartbeat" in view.kinds
