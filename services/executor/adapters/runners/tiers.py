"""Which sandbox a tool gets: the weakest that is strong enough, and never a weaker one."""

from __future__ import annotations

from collections.abc import Mapping

from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain.errors import sandbox_missing
from services.executor.domain.tool import Tool

# What does for each demand, in order. A tool of a pack never runs inside the executor, whatever it says.
_ENOUGH = {
    "in_process": ("process", "kernel", "machine"),
    "process": ("process", "kernel", "machine"),
    "kernel": ("kernel", "machine"),
    "machine": ("machine",),
}


class Tiers:
    """The sandboxes of this machine, by their strength."""

    def __init__(self, sandboxes: Mapping[str, Sandbox]) -> None:
        self._sandboxes = dict(sandboxes)

    def examine(self) -> None:
        """Let each find out whether it can be used here, which it then remembers. Takes a moment: not for the event loop."""
        for sandbox in self._sandboxes.values():
            sandbox.unavailable_reason()

    def offer(self, tool: Tool) -> Sandbox | None:
        """Return the sandbox that a tool runs in; None when there is none that is strong enough."""
        for tier in _ENOUGH.get(tool.confinement.tier, ()):
            sandbox = self._sandboxes.get(tier)
            if sandbox is not None and not sandbox.unavailable_reason():
                return sandbox
        return None

    def name(self, tool: Tool) -> str:
        """Name the sandbox that a tool runs in; what it lacks, where there is none."""
        sandbox = self.offer(tool)
        return f"{tool.confinement.tier}/missing" if sandbox is None else sandbox.name

    def need(self, tool: Tool) -> Sandbox:
        """Return the sandbox that a tool runs in. Raises SANDBOX_UNAVAILABLE, saying what is missing."""
        sandbox = self.offer(tool)
        if sandbox is None:
            tier = tool.confinement.tier
            wanted = self._sandboxes.get(tier)
            raise sandbox_missing(
                tier, wanted.unavailable_reason() if wanted else f"this executor has no sandbox of the tier {tier}"
            )
        return sandbox

    async def close(self) -> None:
        """Give back what the sandboxes hold; whatever still runs in them is killed."""
        for sandbox in self._sandboxes.values():
            await sandbox.close()
