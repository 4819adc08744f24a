"""What the suites stand on: one running mesh, the floor beside it, and who is who among the processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bench.environment.envoy import Upstream, passing
from bench.environment.machine import family
from bench.floors.durable_echo import DATABASE
from bench.floors.echo import ECHO, EMPTY
from bench.load.generator import Body, Target
from bench.load.mcp_calls import STATELESS, mcp_call
from tests.harness.mesh import Mesh, running_mesh
from tests.harness.stores import free_port, wait_until

CHECK = "/toolmesh.authz.v1.AuthzService/Check"


@dataclass
class Stage:
    """A mesh and a floor that run side by side for the whole of a run."""

    mesh: Mesh
    floor_port: int
    floor_pid: int
    folder: Path
    """For files that are gone with the stage."""
    tools: int = 0
    """How many tools of the catalogue its registry holds."""
    empty_registry: int = 0
    """How many bytes the registry's process held before the first of them."""

    @property
    def pki(self) -> Path:
        return self.mesh.state / "pki"

    @cached_property
    def token(self) -> str:
        """A token that may do everything that is measured."""
        return self.mesh.token(ttl="1h", scopes="tools:call,tools:read,audit:read", trust="80")

    @cached_property
    def parts(self) -> dict[str, tuple[str, int]]:
        """The address and the process of every part."""
        return {part["name"]: (part.get("address", ""), int(part["pid"])) for part in self.mesh.status()["services"]}

    def pids(self, *names: str) -> list[int]:
        """Return the processes of these parts, or of all, with everything below them."""
        return [pid for name in names or self.parts for pid in family(self.parts[name][1])]

    def members(self) -> dict[str, Sequence[int]]:
        """Return the processes of every part, told apart."""
        return {name: self.pids(name) for name in self.parts}

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

    def policy(self) -> Target:
        """Return authz as a target, asked by the executor about the caller of the token."""
        headers = {"authorization": f"Bearer {self.token}"}
        return replace(self.peer("authz", CHECK), headers=headers)

    def edge(self, path: str) -> Target:
        """Return a service behind Envoy as a target, over HTTP/2 without TLS."""
        return Target(f"h2c://{self.mesh.edge}", path, headers={"authorization": f"Bearer {self.token}"})

    def json_rpc(self) -> Target:
        """Return the JSON-RPC door behind Envoy as a target."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        return Target(self.mesh.url, "/rpc", kind="json", headers=headers)

    def mcp(self) -> tuple[Target, list[Body]]:
        """Return the endpoint of MCP behind Envoy as a target, and a call without a session."""
        headers, bodies = mcp_call(STATELESS, "core__echo")
        front = self.json_rpc()
        return replace(front, path="/mcp", headers=headers | front.headers), bodies


@dataclass(frozen=True)
class Fronted:
    """The floors behind an Envoy that only passes on: the echo itself, and the echo behind an ASGI server that speaks
    JSON."""

    stage: Stage
    ports: dict[str, int]
    envoy_pid: int
    asgi_pid: int

    def grpc(self) -> tuple[Target, list[int]]:
        """Return the echo behind Envoy, and the processes that take part."""
        return Target(f"h2c://127.0.0.1:{self.ports['grpc']}", ECHO), [self.envoy_pid, self.stage.floor_pid]

    def json(self) -> tuple[Target, list[int]]:
        """Return the echo behind Envoy and an ASGI server, and the processes that take part."""
        headers = {"content-type": "application/json"}
        target = Target(f"http://127.0.0.1:{self.ports['json']}", "/rpc", kind="json", headers=headers)
        return target, [self.envoy_pid, self.asgi_pid, self.stage.floor_pid]


@contextmanager
def fronted(stage: Stage) -> Iterator[Fronted]:
    """Run the floors behind Envoy."""
    port = free_port()
    with ExitStack() as stack:
        pid = stack.enter_context(served("bench.floors.asgi_bridge", port, str(stage.floor_port), str(stage.pki)))
        upstreams = {"grpc": Upstream(stage.floor_port, "executor", True), "json": Upstream(port, "gateway", False)}
        ports, envoy = stack.enter_context(passing(stage.folder, stage.pki, upstreams))
        yield Fronted(stage, ports, envoy, pid)


@contextmanager
def durable(stage: Stage) -> Iterator[tuple[Target, list[int]]]:
    """Run the echo that leaves two durable records; yield it as a target, and the processes that take part."""
    log_port, port = free_port(), free_port()
    command = [sys.executable, "-m", "bench.floors.durable_echo"]
    log = [*command, "log", str(log_port), str(stage.pki), str(log_port)]
    echo = [*command, "echo", str(port), str(stage.pki), str(log_port)]
    # The database's address holds a password, and a process's arguments are readable by every user.
    with (
        listening(log, log_port, "the durable log", **{DATABASE: stage.database()}) as log_pid,
        listening(echo, port, "the durable echo") as pid,
    ):
        target = Target(f"h2://127.0.0.1:{port}", ECHO, pki=stage.pki, authority="executor")
        yield target, [log_pid, pid, *stage.pids("postgres")]


def is_listening(port: int) -> bool:
    """Return whether a program listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def listening(command: Sequence[str], port: int, name: str, **environ: str) -> Iterator[int]:
    """Run a program that listens on a port; yield its process once it does."""
    process = subprocess.Popen(command, env={**os.environ, **environ})
    try:
        wait_until(lambda: process.poll() is not None or is_listening(port), f"the start of {name}", 60)
        assert process.poll() is None, f"{name} ended at once"
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def served(module: str, port: int, *arguments: str) -> Iterator[int]:
    """Run a module of the bench that listens on a port; yield its process once it does."""
    with listening([sys.executable, "-m", module, str(port), *arguments], port, module) as pid:
        yield pid


# No caller of the bench is to be held back for calling often.
_UNLIMITED = {"TOOLMESH_EDGE_RATE": "1000000", "TOOLMESH_EDGE_BURST": "1000000"}


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Run a mesh and the floor."""
    with running_mesh(folder / "state", TOOLMESH_EGRESS_INTERNAL="127.0.0.0/8", **_UNLIMITED) as mesh:
        port = free_port()
        with served("bench.floors.echo", port, str(mesh.state / "pki")) as pid:
            yield Stage(mesh, port, pid, folder)
