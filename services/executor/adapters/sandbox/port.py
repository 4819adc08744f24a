"""What every sandbox promises, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Plan:
    """One confined process: what it runs, sees, may use and may reach. What is not named here does not exist for it."""

    argv: tuple[str, ...]
    """The program and its arguments, as paths inside the sandbox. Never a shell line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All of its environment; nothing is inherited."""
    readable: tuple[tuple[str, str], ...] = ()
    """Host paths and where they appear inside, read-only, beside the system's own programs and libraries."""
    writable: tuple[tuple[str, str], ...] = ()
    """The same for what it may change. Everything else that it can write is its private /tmp."""
    memory_bytes: int = 512 << 20
    scratch_bytes: int = 64 << 20
    """How much its /tmp may hold."""
    file_bytes: int = 64 << 20
    """How large one file may become."""
    processes: int = 32
    """Processes and threads at once."""
    millicpus: int = 1000
    cpu_seconds: float = 60.0
    """Processor time in all, after which it is stopped."""
    egress_socket: str = ""
    """The host path of the unix socket that leads out, shown inside as /run/egress.sock; empty for no way out at all."""


class End(StrEnum):
    """How a confined process came to its end."""

    EXITED = "exited"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    CPU_LIMIT = "cpu_limit"
    PROCESS_LIMIT = "process_limit"
    FILE_LIMIT = "file_limit"
    FORBIDDEN_CALL = "forbidden_call"
    KILLED = "killed"
    """By us: its time was over, or nobody wanted its answer any more."""
    NEVER_BEGAN = "never_began"
    """The sandbox itself could not be made."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a confined process."""

    kind: End
    code: int = 0
    """Its exit status, where it exited by itself."""
    complaint: str = ""
    """The last of what it wrote to its standard error; untrusted, bounded, for the log of the mesh only."""
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


class Confined(Protocol):
    """A process in a sandbox."""

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Leads to its standard input."""
        ...

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Brings its standard output. Whoever reads it bounds what is read."""
        ...

    async def ended(self) -> Ending:
        """Wait for its end, whatever it is. When this returns, nothing that it started is left."""
        ...

    async def kill(self) -> Ending:
        """End it and everything it started, within 100 ms. Killing what has ended returns how it ended."""
        ...


class Sandbox(Protocol):
    """A way to confine processes."""

    @property
    def name(self) -> str:
        """Its tier and what it is made of, such as `process/bubblewrap`."""
        ...

    def unavailable(self) -> str:
        """Say in one sentence why it cannot be used on this machine; empty if it can."""
        ...

    async def start(self, plan: Plan) -> Confined:
        """Start a process. Raises SANDBOX_UNAVAILABLE when it could not be confined as planned; nothing ever runs with less."""
        ...

    async def close(self) -> None:
        """Give back what all its processes shared. Whatever still runs is killed."""
        ...
