"""Several executors beside a running mesh, on one database, each of which may die and comes back at its address."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

from libs.common.rpc.status import _find_envelope
from tests.harness.executors.replicas import ROOT, ready
from tests.harness.mesh import Mesh
from tests.harness.stores import free_port, wait_until

# A test that waits for a process to come back polls often.
_QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)]
_QUICK += [("grpc.max_reconnect_backoff_ms", 300)]


@dataclass
class Member:
    """One executor: where it is, and the process that is there now."""

    port: int
    ops: int
    environ: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def stopped(self) -> bool:
        """True if it stands still."""
        if self.process is None:
            return False
        # The state comes after the name, which may hold anything but stands in brackets.
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@dataclass
class Fleet:
    """Executors of one module."""

    mesh: Mesh
    module: str
    members: list[Member] = field(default_factory=list)

    def start(self, member: Member) -> None:
        """Start a process where none is; does not wait for it."""
        with member.log.open("ab") as output:
            member.process = subprocess.Popen(
                [sys.executable, "-m", self.module], env=member.environ, cwd=ROOT, stdout=output, stderr=output
            )

    def revive(self) -> int:
        """Start every process that is gone; return how many were."""
        dead = [member for member in self.members if not member.alive]
        for member in dead:
            self.start(member)
        return len(dead)

    def signal(self, member: Member, number: signal.Signals) -> None:
        """Send a signal to a process that is there."""
        if member.process is not None:
            with suppress(ProcessLookupError):
                os.kill(member.process.pid, number)

    def kill(self, member: Member) -> None:
        """Kill a process without a word."""
        self.signal(member, signal.SIGKILL)
        if member.process is not None:
            member.process.wait()

    def wait_ready(self) -> None:
        """Wait until every process is ready."""
        for member in self.members:
            wait_until(lambda: not member.alive or ready(member.ops), "the start of an executor", 600)  # noqa: B023
            assert member.alive, member.log.read_text()[-4000:]


@contextmanager
def fleet_of(mesh: Mesh, module: str, folder: Path, size: int, **environ: str) -> Iterator[Fleet]:
    """Run so many executors, ready, with the environment of the mesh's own but for these variables."""
    pid = mesh.part("executor")["pid"]
    inherited = dict(
        entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry
    )
    fleet = Fleet(mesh, module)
    for number in range(size):
        port, ops = free_port(), free_port()
        own = {
            "TOOLMESH_LISTEN": f"127.0.0.1:{port}",
            "TOOLMESH_OPS_LISTEN": f"127.0.0.1:{ops}",
            "TOOLMESH_INSTANCE_ID": f"fleet-{number}",
        }
        fleet.members.append(Member(port, ops, inherited | own | environ, folder / f"fleet-{number}.log"))
    try:
        fleet.revive()
        fleet.wait_ready()
        yield fleet
    finally:
        for member in fleet.members:
            fleet.kill(member)


@dataclass(frozen=True)
class Answer:
    """What a caller got in the end."""

    content: bytes
    replayed: bool = False
    code: str = ""


class Callers:
    """Calls any of a fleet's executors, again and again while that is allowed, always with the same key."""

    def __init__(self, stubs: list[Any], token: str) -> None:
        self._stubs, self._metadata = stubs, (("authorization", f"Bearer {token}"),)

    async def answer(self, request: pb.InvokeRequest, first: int, *, timeout: float) -> Answer:
        """Return the result, or the code of an error that says that asking again is useless."""
        attempt = first
        while True:
            stub = self._stubs[attempt % len(self._stubs)]
            attempt += 1
            try:
                response = await stub.Invoke(request, metadata=self._metadata, timeout=timeout, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                envelope = envelope_in(error)
                if envelope is not None and not envelope.retryable:
                    return Answer(b"", code=envelope.code)
                continue
            return Answer(response.result.structured_content, response.result.replayed)


def envelope_in(error: grpc.aio.AioRpcError) -> ErrorEnvelope | None:
    """Return the mesh's own words about a failure; None if the transport failed before the mesh could answer."""
    return _find_envelope(error.trailing_metadata() or ())


@asynccontextmanager
async def calling(fleet: Fleet, token: str) -> AsyncIterator[Callers]:
    """Callers with a channel to every executor of a fleet, under the certificate of an orchestrator."""
    async with AsyncExitStack() as stack:
        stubs = []
        for member in fleet.members:
            channel = await stack.enter_async_context(channel_of(fleet, member))
            stubs.append(rpc.ExecutorServiceStub(channel))
        yield Callers(stubs, token)


def channel_of(fleet: Fleet, member: Member) -> grpc.aio.Channel:
    """A channel to one executor, under the certificate of an orchestrator."""
    options = [("grpc.ssl_target_name_override", "executor"), *_QUICK]
    return grpc.aio.secure_channel(f"127.0.0.1:{member.port}", credentials_of(fleet.mesh), options=options)


def credentials_of(mesh: Mesh) -> grpc.ChannelCredentials:
    """The certificate of an orchestrator."""
    runtime = mesh.runtime
    pair = [Path(runtime["orchestrator"][part]).read_bytes() for part in ("key", "cert")]
    return grpc.ssl_channel_credentials(Path(runtime["ca"]).read_bytes(), *pair)
