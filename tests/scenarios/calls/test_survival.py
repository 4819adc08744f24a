"""Processes end: asked to, they finish what they accepted; killed, they come back, and the mesh says so."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import grpc
import httpx
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc

from libs.common.ids import new_id
from tests.harness.mesh import Mesh, cli
from tests.harness.stores import wait_until


def rest_as_faults(first: str, *rest: str) -> list[Any]:
    """Return parameters of which `make test` runs the first, and `make test-faults` the rest."""
    return [first, *(pytest.param(name, marks=pytest.mark.faults) for name in rest)]


SERVICES = rest_as_faults("executor", "registry", "authz", "approval", "audit")
PARTS = rest_as_faults("executor", "registry", "authz", "approval", "audit", "gateway", "postgres", "valkey", "envoy")


HEARTBEAT_SECONDS = 5.0


@dataclass
class Load:
    """Calls made one after another by several callers, and what became of each."""

    mesh: Mesh
    token: str
    answers: list[tuple[str, httpx.Response | httpx.TransportError]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools.invoke",
            "params": {"tool": "echo", "arguments": {"text": "x"}},
        }
        with httpx.Client(base_url=self.mesh.url, timeout=30) as client:
            while not self.stop.is_set():
                request_id = new_id()
                try:
                    answer: Any = client.post(
                        "/rpc", content=json.dumps(body), headers={**headers, "x-request-id": request_id}
                    )
                except httpx.TransportError as error:
                    answer = error
                self.answers.append((request_id, answer))

    def failures(self) -> list[tuple[str, Any]]:
        return [(i, a) for i, a in self.answers if not isinstance(a, httpx.Response) or "result" not in a.json()]


def is_retryable(answer: Any) -> bool:
    """Return whether an answer is a typed refusal that the client may repeat."""
    return isinstance(answer, httpx.Response) and bool(answer.json().get("error", {}).get("data", {}).get("retryable"))


@contextmanager
def under_load(mesh: Mesh, callers: int = 6) -> Iterator[Load]:
    load = Load(mesh, mesh.token())
    with ThreadPoolExecutor(callers) as pool:
        workers = [pool.submit(load.work) for _ in range(callers)]
        try:
            wait_until(lambda: len(load.answers) > callers, "the first answers")
            yield load
            enough = len(load.answers) + 2 * callers
            wait_until(lambda: len(load.answers) > enough, "answers after the fault", 120)
        finally:
            load.stop.set()
    for worker in workers:
        worker.result()


def works(mesh: Mesh) -> bool:
    answer = mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=mesh.token())
    return "result" in answer.json()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_is_asked_to_stop_under_load_fails_no_call(killed_mesh: Mesh, name: str) -> None:
    with under_load(killed_mesh) as load:
        began = time.monotonic()
        pid = killed_mesh.kill(name, signal.SIGTERM)
        killed_mesh.wait_ready(name, other_than=pid)
        outage = time.monotonic() - began
    # After five seconds without a heartbeat services refuse by design; only a busy machine restarts that slowly.
    failures = [a for _, a in load.failures() if outage < HEARTBEAT_SECONDS or not is_retryable(a)]
    assert [getattr(a, "text", a) for a in failures] == []


def test_a_gateway_that_is_asked_to_stop_under_load_fails_nothing_that_it_accepted(killed_mesh: Mesh) -> None:
    with under_load(killed_mesh) as load:
        pid = killed_mesh.kill("gateway", signal.SIGTERM)
        killed_mesh.wait_ready("gateway", other_than=pid)
    accepted = {line.get("request_id") for line in killed_mesh.logs("gateway") if line.get("event") == "call"}
    assert [i for i, _ in load.failures() if i in accepted] == []
    # Whom the edge had to turn away meanwhile, it told that a retry is worth it.
    turned_away = [a for _, a in load.failures()]
    assert all(isinstance(a, httpx.Response) and a.json()["error"]["data"]["retryable"] for a in turned_away)
    # The edge looks for itself whether the gateway is back.
    wait_until(lambda: works(killed_mesh), "the way through the edge")


@pytest.mark.parametrize("name", PARTS)
def test_a_killed_part_comes_back_and_the_mesh_says_so(killed_mesh: Mesh, name: str) -> None:
    before = killed_mesh.part(name)["restarts"]
    pid = killed_mesh.kill(name, signal.SIGKILL)
    killed_mesh.wait_ready(name, other_than=pid)
    assert killed_mesh.part(name)["restarts"] == before + 1
    assert works(killed_mesh)
    said = cli("logs", "runner", "-n", "200", state=killed_mesh.state).stdout
    assert [line for line in said.splitlines() if name in line and "SIGKILL" in line] != []


def test_an_acknowledged_act_is_recorded_although_its_service_was_killed(killed_mesh: Mesh) -> None:
    """Between the two writes: the token is in the ledger, and the log has not seen the act yet."""
    reader, frozen = killed_mesh.token(tools="core.*", scopes="audit:read"), killed_mesh.part("audit")["pid"]
    os.kill(frozen, signal.SIGSTOP)
    try:
        token = killed_mesh.token()
        pid = killed_mesh.kill("authz", signal.SIGKILL)
    finally:
        os.kill(frozen, signal.SIGCONT)
    killed_mesh.wait_ready("authz", other_than=pid)

    def recorded() -> list[Any]:
        ran = cli("audit", "acts", token, "--token", reader, "--json", state=killed_mesh.state, check=False)
        return json.loads(ran.stdout)["records"] if ran.returncode == 0 else []

    wait_until(recorded, "the act of the killed service")
    [act] = recorded()
    assert act["record"]["event_class"] == "token_issued"


def test_nothing_recorded_is_lost_when_audit_is_killed_under_load(killed_mesh: Mesh) -> None:
    with under_load(killed_mesh) as load:
        pid = killed_mesh.kill("audit", signal.SIGKILL)
        killed_mesh.wait_ready("audit", other_than=pid)
    answered = [a.json()["result"] for _, a in load.answers if isinstance(a, httpx.Response) and "result" in a.json()]
    assert answered != []
    metadata = (("authorization", f"Bearer {killed_mesh.token(scopes='audit:read')}"),)
    with killed_mesh.edge_channel() as channel:
        query = audit_rpc.AuditServiceStub(channel).QueryRecords

        def recorded(result: dict[str, Any]) -> bool:
            asked = audit_pb.QueryRecordsRequest(filter=audit_pb.RecordFilter(invocation_id=result["invocation_id"]))
            try:
                found = query(asked, metadata=metadata, timeout=60).records
            except grpc.RpcError as error:
                if cast("grpc.Call", error).code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                # Envoy sends requests to audit again once its next health check has succeeded.
                return False
            return set(result["evidence_refs"]) <= {f"records/{each.record.record_id}" for each in found}

        # An outcome that audit could not take is in the outbox, and reaches the log soon.
        for result in answered:
            wait_until(partial(recorded, result), f"the records of {result['invocation_id']}")
