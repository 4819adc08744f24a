"""Says what keeps each limit of a sandbox on this machine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from services.executor.domain.tool import Limit


class Bound(StrEnum):
    """How a limit is kept."""

    GROUPS = "groups"
    """The kernel keeps it for all processes together, with a cgroup."""
    RLIMITS = "rlimits"
    """The kernel keeps it for one user namespace or one container."""
    WATCH = "watch"
    """Use is measured from outside, and the sandbox is killed once it is over the limit."""
    NONE = "none"
    """Not kept."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How the limits that depend on cgroups are kept. Scratch space and network do not depend on them."""

    memory: Bound
    processes: Bound
    cpu_time: Bound
    cpu_share: Bound
    has_volumes: bool = True
    """Whether its processes can have volumes."""

    def unkept(self) -> frozenset[Limit]:
        """Return the limits that nothing keeps."""
        kept_by = {Limit.MEMORY: self.memory, Limit.PROCESSES: self.processes, Limit.CPU_SHARE: self.cpu_share}
        without = frozenset() if self.has_volumes else frozenset({Limit.VOLUMES})
        return without | {limit for limit, bound in kept_by.items() if bound is Bound.NONE}

    def __str__(self) -> str:
        """Return one line for operators."""
        return (
            f"memory: {self.memory}, processes: {self.processes}, CPU time: {self.cpu_time}, "
            f"CPU share: {self.cpu_share}"
        )


def bounds_with(controllers: Collection[str]) -> Bounds:
    """Return how limits are kept by sandboxes whose cgroups have these controllers."""
    counts_time = not {"cpu", "cpuacct"}.isdisjoint(controllers)
    return Bounds(
        memory=Bound.GROUPS if "memory" in controllers else Bound.WATCH,
        processes=Bound.GROUPS if "pids" in controllers else Bound.RLIMITS,
        cpu_time=Bound.GROUPS if counts_time else Bound.WATCH,
        cpu_share=Bound.GROUPS if "cpu" in controllers else Bound.NONE,
    )
