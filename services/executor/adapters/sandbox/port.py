"""The sandbox port: what a run asks for, how it ends, and the interface that bubblewrap and gVisor implement."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from services.executor.adapters.sandbox.bounds import Bounds


@dataclass(frozen=True, slots=True)
class Plan:
    """One sandboxed process: its command, mounts, limits and network access. Anything not listed is absent."""

    argv: tuple[str, ...]
    """Program and arguments, with paths inside the sandbox. Never a shell command line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The complete environment; nothing is inherited."""
    readable: tuple[tuple[str, str], ...] = ()
    """Read-only bind mounts (host path, path inside), in addition to the root file system."""
    writable: tuple[tuple[str, str], ...] = ()
    """Writable bind mounts. The only other writable place is a private /tmp."""
    memory_bytes: int = 512 << 20
    scratch_bytes: int = 64 << 20
    """Size of /tmp."""
    file_bytes: int = 64 << 20
    """Largest size of one file."""
    processes: int = 32
    """Processes and threads at the same time."""
    millicpus: int = 1000
    cpu_seconds: float = 60.0
    """Total CPU time, after which the process is killed."""
    egress_socket: str = ""
    """Host path of the egress proxy's unix socket, mounted as /run/egress.sock; empty for no network access."""
    loopback: bool = False
    """True if the process may open TCP sockets. They reach only itself: its network namespace has no interface."""
    has_events: bool = False
    """True if the process gets two more pipes: descriptor 3 for its events, 4 for its input."""
    mount_namespace: int = 0
    """The process in whose mount namespace the host paths are; 0 for that of the executor."""

    def reachable(self, host: str) -> str:
        """Return the path by which the executor reaches a host path of this plan."""
        return f"/proc/{self.mount_namespace}/root{host}" if self.mount_namespace else host


class ExitKind(StrEnum):
    """Why a sandboxed process ended."""

    EXITED = "exited"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    CPU_LIMIT = "cpu_limit"
    PROCESS_LIMIT = "process_limit"
    FILE_LIMIT = "file_limit"
    FORBIDDEN_CALL = "forbidden_call"
    KILLED = "killed"
    """Killed by the executor: deadline or cancellation."""
    NOT_STARTED = "not_started"
    """The sandbox could not be created."""


@dataclass(frozen=True, slots=True)
class ExitReport:
    """How a sandboxed process ended and what it used."""

    kind: ExitKind
    code: int = 0
    """Exit status if it exited, signal number if it crashed."""
    stderr_tail: str = ""
    """The last bytes of its standard error; untrusted, bounded, for the operator's log only."""
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


class EnvironmentUnavailableError(Exception):
    """A sandbox cannot be used on this machine. The message is one sentence that names what is missing."""


EVENTS_DESCRIPTOR, INPUT_DESCRIPTOR = 3, 4
"""The descriptors of a process whose plan says `has_events`."""


class EventPipes(NamedTuple):
    """The further pipes of a process."""

    events: asyncio.StreamReader
    input: asyncio.StreamWriter


class SandboxedProcess(Protocol):
    """A running sandboxed process."""

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return the writer of its standard input."""
        ...

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return the reader of its standard output. The caller bounds how much it reads."""
        ...

    @property
    def event_pipes(self) -> EventPipes | None:
        """Return the pipes of its events and its input, where its plan asks for them."""
        ...

    async def wait(self) -> ExitReport:
        """Wait for the end. When this returns, every process that it started is gone."""
        ...

    async def terminate(self) -> None:
        """Send SIGTERM to the first process inside. Does nothing if it has ended; it may ignore the signal."""
        ...

    async def kill(self) -> ExitReport:
        """Kill the whole process tree within 100 ms. Returns the first report if it has already ended."""
        ...


class Sandbox(Protocol):
    """A technique that confines processes."""

    @property
    def name(self) -> str:
        """Return its tier and technique, such as `process/bubblewrap`."""
        ...

    def unavailable_reason(self) -> str:
        """Return one sentence why it cannot be used on this machine; empty if it can."""
        ...

    def bounds(self) -> Bounds | None:
        """Return what keeps the limits of its processes; None before it was probed and where it cannot be used. Never
        blocks."""
        ...

    async def start(self, plan: Plan) -> SandboxedProcess:
        """Start a process. Raises SANDBOX_UNAVAILABLE if the plan cannot be enforced in full."""
        ...

    async def close(self) -> None:
        """Kill running processes and release shared resources."""
        ...
