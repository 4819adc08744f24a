"""Audit is stopped, killed and restarted while calls run: what ran is answered and on record, and nothing new
begins."""

from __future__ import annotations

import json
import os
import signal
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
import pytest
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope

from libs.common.rpc.status import _find_envelope
from tests.harness.mesh import Mesh, cli, invoke
from tests.harness.stores import free_port, wait_until


@dataclass
class Replica:
    """A second executor on the same mesh, whose tool `nap` runs for as long as a test wants."""

    mesh: Mesh
    process: subprocess.Popen[bytes]
    port: int
    ops: int
    folder: Path

    def nap(self, pool: ThreadPoolExecutor, name: str, **request: Any) -> Future[Any]:
        """Begin a call and return once its tool runs."""
        began, wake = self.folder / f"{name}.began", self.folder / f"{name}.wake"
        arguments = json.dumps({"began": str(began), "wake": str(wake)}).encode()
        call = pool.submit(self.call, "nap", arguments, **request)
        wait_until(lambda: began.exists() or call.done(), "the start of the nap")
        return call

    def wake(self, name: str) -> None:
        (self.folder / f"{name}.wake").touch()

    def call(self, tool: str, arguments: bytes, **request: Any) -> Any:
        with self.channel() as channel:
            return invoke(channel, tool, arguments, token=self.mesh.token(), timeout=30, request=request).result

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        runtime = self.mesh.runtime
        pair = [Path(runtime["orchestrator"][name]).read_bytes() for name in ("key", "cert")]
        credentials = grpc.ssl_channel_credentials(Path(runtime["ca"]).read_bytes(), *pair)
        options = [("grpc.ssl_target_name_override", "executor")]
        with grpc.secure_channel(f"127.0.0.1:{self.port}", credentials, options=options) as channel:
            yield channel

    def gauge(self, name: str) -> float:
        lines = httpx.get(f"http://127.0.0.1:{self.ops}/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@pytest.fixture
def replica(killed_mesh: Mesh, tmp_path: Path) -> Iterator[Replica]:
    pid = killed_mesh.part("executor")["pid"]
    inherited = dict(
        entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in entry
    )
    port, ops = free_port(), free_port()
    environment = inherited | {
        "TOOLMESH_LISTEN": f"127.0.0.1:{port}",
        "TOOLMESH_OPS_LISTEN": f"127.0.0.1:{ops}",
        "TOOLMESH_INSTANCE_ID": "napping",
        "TOOLMESH_AUDIT_WAIT_SECONDS": "1",
    }
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "tests.harness.executors.napping_executor"]
    with (tmp_path / "executor.log").open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=root, stdout=output, stderr=output)
    found = Replica(killed_mesh, process, port, ops, tmp_path)
    try:
        wait_until(lambda: process.poll() is not None or ready(ops), "the start of the replica", 240)
        wait_until(lambda: knows_nap(found), "the registration of the nap", 240)
        yield found
    finally:
        process.kill()
        process.wait()


def ready(ops: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{ops}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def knows_nap(replica: Replica) -> bool:
    try:
        replica.call("nap", b"{}")
    except grpc.RpcError as error:
        return reason(error).code == "E3301"
    return False


def reason(error: grpc.RpcError) -> ErrorEnvelope:
    found = _find_envelope(error.trailing_metadata() or ())  # type: ignore[arg-type, attr-defined]
    assert found is not None, error
    return found


@contextmanager
def audit_stopped(mesh: Mesh) -> Iterator[int]:
    pid = int(mesh.part("audit")["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with_pid = Path(f"/proc/{pid}")
        if with_pid.exists():
            os.kill(pid, signal.SIGCONT)


def records(mesh: Mesh, invocation_id: str) -> list[dict[str, Any]]:
    """What the log holds about a call, in the log's order."""
    done = cli("audit", "tail", "--invocation", invocation_id, "--json", state=mesh.state, check=False)
    if done.returncode:
        return []
    found = sorted(json.loads(done.stdout)["records"], key=lambda entry: int(entry["sequence"]))
    return [entry["record"] for entry in found]


def test_what_runs_while_audit_stands_still_is_answered_and_recorded_once_it_moves(
    killed_mesh: Mesh, replica: Replica
) -> None:
    with ThreadPoolExecutor(2) as pool:
        running = [replica.nap(pool, "a"), replica.nap(pool, "b", idempotency_key="once")]
        with audit_stopped(killed_mesh):
            replica.wake("a")
            replica.wake("b")
            results = [call.result(30) for call in running]
            assert [json.loads(result.structured_content) for result in results] == [{"slept": True}] * 2
            assert replica.gauge("toolmesh_outbox_depth") == 2
            with pytest.raises(grpc.RpcError) as caught:
                replica.call("echo", b'{"text":"never"}')
            refused = reason(caught.value)
            assert (refused.code, refused.retryable, bool(refused.invocation_id)) == ("E3801", True, True)
        for result in results:
            wait_until(lambda: len(records(killed_mesh, result.invocation_id)) == 2, "both records of the call", 60)  # noqa: B023
            decided, ended = records(killed_mesh, result.invocation_id)
            assert (ended["follows"], ended["status"]) == (decided["record_id"], "success")
            assert list(result.evidence_refs) == [f"records/{decided['record_id']}", f"records/{ended['record_id']}"]
        wait_until(lambda: replica.gauge("toolmesh_outbox_depth") == 0, "an empty outbox", 240)
    assert replica.call("echo", b'{"text":"again"}').structured_content == b'{"text":"again"}'


def test_what_a_killed_executor_kept_reaches_a_killed_and_restarted_audit(killed_mesh: Mesh, replica: Replica) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = replica.nap(pool, "a")
        with audit_stopped(killed_mesh) as frozen:
            replica.wake("a")
            result = running.result(30)
            os.kill(replica.process.pid, signal.SIGKILL)
            os.kill(frozen, signal.SIGKILL)
            killed_mesh.wait_ready("audit", other_than=frozen)
    wait_until(lambda: len(records(killed_mesh, result.invocation_id)) == 2, "the outcome from the other executor", 240)
    decided, ended = records(killed_mesh, result.invocation_id)
    assert (ended["follows"], ended["executor_id"]) == (decided["record_id"], "napping")
