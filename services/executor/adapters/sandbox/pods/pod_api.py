"""The port to the cluster: what the sandbox of pods asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class ClusterError(Exception):
    """The cluster refused a request or could not be asked. The message is one sentence for operators."""

    def __init__(self, message: str, status: int = 0) -> None:
        """`status` is that of the API server's answer; 0 without one."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One container of a pod."""

    running: bool = False
    ended: str = ""
    """Why it ended, such as `Completed` or `OOMKilled`; empty before."""
    waiting: str = ""
    """Why it does not run yet, such as `ImagePullBackOff`."""


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod as the API server knows it."""

    name: str
    owner: str
    """The identifier of the lease that owns it; empty for none."""
    phase: str
    containers: dict[str, ContainerState]


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The lease by which an executor shows that it lives."""

    name: str
    uid: str
    renewed: str
    """Changes with every renewal."""


class ExecSession(Protocol):
    """A program that was started in a container, with its standard streams."""

    async def send(self, content: bytes) -> None:
        """Write to its standard input. Raises ConnectionError."""
        ...

    async def receive(self) -> bytes:
        """Return the next bytes of its standard output; none at its end or that of the connection."""
        ...

    async def close(self) -> None:
        """Close the connection, which ends its standard input."""
        ...


class PodApi(Protocol):
    """The pods and leases of one namespace. Each method raises ClusterError."""

    async def address(self) -> tuple[str, int]:
        """Return the host and port of the API server, which no tool may reach."""
        ...

    async def create_pod(self, pod: dict[str, Any]) -> None:
        """Create a pod."""
        ...

    async def read_pod(self, name: str) -> PodState | None:
        """Return a pod; None if there is none of this name."""
        ...

    async def list_pods(self) -> list[PodState]:
        """Return the pods of tools, those of other executors too."""
        ...

    async def delete_pod(self, name: str) -> None:
        """Delete a pod and give its processes a second. Does nothing if there is none."""
        ...

    async def execute(self, pod: str, container: str, argv: tuple[str, ...]) -> ExecSession:
        """Start a program in a running container."""
        ...

    async def create_lease(self, name: str) -> LeaseState:
        """Create a lease; one of the same name is deleted before."""
        ...

    async def renew_lease(self, name: str) -> bool:
        """Renew a lease. Returns False if it is gone."""
        ...

    async def list_leases(self) -> list[LeaseState]:
        """Return the leases of executors."""
        ...

    async def delete_lease(self, name: str) -> None:
        """Delete a lease, with all pods that it owns. Does nothing if there is none."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
