"""Selects the sandbox of a tool: the weakest available one that meets the manifest's tier and keeps its limits."""

from __future__ import annotations

from collections.abc import Mapping

from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain.errors import limits_not_kept, sandbox_missing
from services.executor.domain.tool import Limit, Tool

# Sufficient tiers for each demanded tier, weakest first. A tool of a pack never runs inside the executor process.
_SUFFICIENT = {
    "in_process": ("process", "kernel", "machine"),
    "process": ("process", "kernel", "machine"),
    "kernel": ("kernel", "machine"),
    "machine": ("machine",),
}


class Tiers:
    """The sandboxes of this machine by tier."""

    def __init__(self, sandboxes: Mapping[str, Sandbox]) -> None:
        self._sandboxes = dict(sandboxes)
        self._reasons: dict[str, str] = {}
        """Why each probed sandbox cannot be used; empty if it can."""

    def probe(self) -> None:
        """Check each sandbox, which caches the result. Blocking: run it in a thread."""
        for tier, sandbox in self._sandboxes.items():
            self._reasons[tier] = sandbox.unavailable_reason()

    def available(self) -> tuple[str, ...]:
        """Return the tiers that work on this machine. Blocking while they have not been probed."""
        self.probe()
        return tuple(tier for tier, reason in self._reasons.items() if not reason)

    def describe(self) -> str:
        """Return a line for operators per sandbox: what keeps the limits of its processes, or why it cannot be used.
        Never blocks."""
        return "".join(f"{sandbox.name}: {self._state(tier)}\n" for tier, sandbox in self._sandboxes.items())

    def find(self, tool: Tool) -> Sandbox | None:
        """Return the sandbox for a tool; None if no available one is strong enough."""
        return self.weakest(tool.confinement.tier, tool.confinement.declared)

    def weakest(self, demanded: str, limits: frozenset[Limit] = frozenset()) -> Sandbox | None:
        """Return the weakest available sandbox that meets a tier and keeps these limits; None if there is none."""
        for tier in _SUFFICIENT.get(demanded, ()):
            sandbox = self._sandboxes.get(tier)
            if sandbox is not None and not sandbox.unavailable_reason() and not limits & _unkept_by(sandbox):
                return sandbox
        return None

    def unkept(self) -> tuple[tuple[str, Limit], ...]:
        """Return the limits that available sandboxes do not keep, with their tiers. Blocking like `available`."""
        return tuple((tier, limit) for tier in self.available() for limit in sorted(_unkept_by(self._sandboxes[tier])))

    def name(self, tool: Tool) -> str:
        """Return the name of the tool's sandbox, or `<tier>/missing`."""
        sandbox = self.find(tool)
        return f"{tool.confinement.tier}/missing" if sandbox is None else sandbox.name

    def require(self, tool: Tool) -> Sandbox:
        """Return the sandbox for a tool. Raises SANDBOX_UNAVAILABLE with the cause."""
        sandbox = self.find(tool)
        if sandbox is None:
            tier = tool.confinement.tier
            if weaker := self.weakest(tier):
                raise limits_not_kept(weaker.name, sorted(tool.confinement.declared & _unkept_by(weaker)))
            wanted = self._sandboxes.get(tier)
            raise sandbox_missing(
                tier, wanted.unavailable_reason() if wanted else f"this executor has no sandbox of the tier {tier}"
            )
        return sandbox

    def _state(self, tier: str) -> str:
        if tier not in self._reasons:
            return "not probed yet"
        return self._reasons[tier] or str(self._sandboxes[tier].bounds() or "closed")

    async def close(self) -> None:
        """Close every sandbox and kill the processes that still run in it."""
        for sandbox in self._sandboxes.values():
            await sandbox.close()


def _unkept_by(sandbox: Sandbox) -> frozenset[Limit]:
    """Return the limits that a sandbox does not keep; all of them where that is not known."""
    bounds = sandbox.bounds()
    return frozenset(Limit) if bounds is None else bounds.unkept()
