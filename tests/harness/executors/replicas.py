"""Second processes for a running mesh: another authz on the same database, and an executor that follows only that
one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope

from libs.common.rpc.status import _find_envelope
from tests.harness.mesh import Mesh, invoke
from tests.harness.stores import free_port, wait_until

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Process:
    """One more process of a service."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    ops: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def another(mesh: Mesh, name: str, folder: Path, *, module: str = "", **environ: str) -> Iterator[Process]:
    """Run another process of a service beside the mesh's own, with the same environment but for these variables."""
    pid = mesh.part(name)["pid"]
    inherited = dict(
        entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry
    )
    port, ops = free_port(), free_port()
    own = {
        "TOOLMESH_LISTEN": f"127.0.0.1:{port}",
        "TOOLMESH_OPS_LISTEN": f"127.0.0.1:{ops}",
        "TOOLMESH_INSTANCE_ID": f"{name}-1",
    }
    command = [sys.executable, "-m", module or f"services.{name}"]
    with (folder / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(command, env=inherited | own | environ, cwd=ROOT, stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or ready(ops), f"the start of another {name}", 240)
        assert process.poll() is None, (folder / f"{name}.log").read_text()[-4000:]
        yield Process(name, process, port, ops)
    finally:
        process.kill()
        process.wait()


def ready(ops: int) -> bool:
    """Say whether a process says that it is ready."""
    try:
        return httpx.get(f"http://127.0.0.1:{ops}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def channel_to_process(mesh: Mesh, process: Process, identity: str = "orchestrator") -> Iterator[grpc.Channel]:
    """A channel straight to a process, with the certificate of `identity`."""
    files = mesh.runtime[identity]
    pair = [Path(files[part]).read_bytes() for part in ("key", "cert")]
    credentials = grpc.ssl_channel_credentials(Path(mesh.runtime["ca"]).read_bytes(), *pair)
    options = [("grpc.ssl_target_name_override", process.name)]
    with grpc.secure_channel(process.address, credentials, options=options) as channel:
        yield channel


def code_of(error: Any) -> str:
    """Return the code in the envelope of a gRPC refusal."""
    return envelope_of(error).code


def envelope_of(error: Any) -> ErrorEnvelope:
    """Return the envelope of a gRPC refusal."""
    found = _find_envelope(error.trailing_metadata() or ())
    assert found is not None, error
    return found


@dataclass
class Napper:
    """An executor whose tool `nap` runs for as long as a test wants, over one open channel."""

    channel: grpc.Channel
    folder: Path

    def code(self, token: str, *, timeout: float = 5.0) -> str:
        """Call a harmless tool; return the code that it is refused with, empty for a success."""
        try:
            invoke(self.channel, "echo", b'{"text":"x"}', token=token, timeout=timeout)
        except grpc.RpcError as error:
            return code_of(error)
        return ""

    def nap(self, pool: ThreadPoolExecutor, name: str, token: str) -> Future[Any]:
        """Begin a call and return once its tool runs."""
        began, wake = self.folder / f"{name}.began", self.folder / f"{name}.wake"
        arguments = json.dumps({"began": str(began), "wake": str(wake)}).encode()
        call = pool.submit(invoke, self.channel, "nap", arguments, token=token, timeout=60)
        wait_until(lambda: began.exists() or call.done(), "the start of the nap")
        assert not call.done(), call.exception()
        return call

    def knows_nap(self, token: str) -> bool:
        """Say whether the tool is registered and known."""
        try:
            invoke(self.channel, "nap", b"{}", token=token, timeout=5)
        except grpc.RpcError as error:
            return code_of(error) == "E3301"
        return False
