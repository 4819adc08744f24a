"""What the suites stand on: one running mesh, the floor beside it, and who is who among the processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.floor import ECHO, EMPTY
from bench.generator import Target
from bench.machine import family
from tests.harness.mesh import Mesh, running_mesh
from tests.harness.stores import free_port, wait_until


@dataclass
class Stage:
    """A mesh and a floor that run side by side for the whole of a run."""

    mesh: Mesh
    floor_port: int
    floor_pid: int

    @property
    def pki(self) -> Path:
        return self.mesh.state / "pki"

    @cached_property
    def token(self) -> str:
        """A token that may do everything that is measured."""
        return self.mesh.token(ttl="1h", scopes="tools:call,tools:read,audit:read")

    @cached_property
    def parts(self) -> dict[str, tuple[str, int]]:
        """The address and the process of every part."""
        return {part["name"]: (part.get("address", ""), int(part["pid"])) for part in self.mesh.status()["services"]}

    def pids(self, *names: str) -> list[int]:
        """Return the processes of these parts, or of all, with everything below them."""
        return [pid for name in names or self.parts for pid in family(self.parts[name][1])]

    def database(self) -> str:
        """Return the address of the mesh's PostgreSQL, as its owner."""
        password = (self.mesh.state / "secrets" / "database" / "postgres").read_text()
        return f"postgresql://postgres:{password}@{self.parts['postgres'][0]}/toolmesh"

    def floor(self, path: str) -> Target:
        """Return the floor as a target: EMPTY or ECHO."""
        assert path in (EMPTY, ECHO)
        return Target(f"h2://127.0.0.1:{self.floor_port}", path, pki=self.pki, authority="executor")

    def service(self, name: str, path: str) -> Target:
        """Return a service as a target, called straight, with the token."""
        headers = {"authorization": f"Bearer {self.token}"}
        return Target(f"h2://{self.parts[name][0]}", path, pki=self.pki, authority=name, headers=headers)

    def peer(self, name: str, path: str) -> Target:
        """Return a service as a target, called straight by the executor on its own authority, as inside the mesh."""
        return Target(f"h2://{self.parts[name][0]}", path, pki=self.pki, authority=name, identity="executor")

    def edge(self, path: str) -> Target:
        """Return a service behind Envoy as a target, over HTTP/2 without TLS."""
        return Target(f"h2c://{self.mesh.edge}", path, headers={"authorization": f"Bearer {self.token}"})

    def json_rpc(self) -> Target:
        """Return the JSON-RPC door behind Envoy as a target."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        return Target(self.mesh.url, "/rpc", kind="json", headers=headers)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Run a mesh and the floor."""
    with running_mesh(folder / "state") as mesh:
        port = free_port()
        bare = subprocess.Popen([sys.executable, "-m", "bench.floor", str(port), str(mesh.state / "pki")])
        try:
            wait_until(lambda: _listens(port), "the floor's start")
            yield Stage(mesh, port, bare.pid)
        finally:
            bare.terminate()
            bare.wait()
