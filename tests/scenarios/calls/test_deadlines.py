"""One deadline: it shrinks at every hop, and when it is over all work ends."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import httpx
import pytest
from google.rpc import status_pb2
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_span_id, new_trace_id
from libs.common.rpc.status import from_envelope
from tests.harness.mesh import Mesh, cli, invoke
from tests.harness.stores import wait_until


@contextmanager
def frozen(mesh: Mesh, name: str) -> Iterator[None]:
    """Hold a service still, so that it is neither dead nor answering."""
    pid = int(mesh.part(name)["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def in_flight(mesh: Mesh, name: str, method: str) -> float:
    text = httpx.get(f"http://{mesh.part(name)['ops']}/metrics").text
    wanted = f'toolmesh_calls_in_flight{{method="{method}"}}'
    return next((float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(wanted)), 0.0)


def test_fifty_milliseconds_arrive_smaller_at_every_hop(mesh: Mesh) -> None:
    """A fresh token each time, so that the decision is not cached and the innermost hop is really reached."""

    def offered() -> list[float] | None:
        trace = new_trace_id()
        headers = {"traceparent": f"00-{trace}-{new_span_id()}-00", "x-deadline-ms": "50"}
        token = mesh.token()
        mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=token, headers=headers)
        # The outermost hop logs every call; by then the others have logged theirs, or did not get it.
        found = [mesh.calls(part, trace, within=0.5) for part in ("gateway", "executor", "authz")]
        return [entries[0]["deadline_ms"] for entries in found] if all(found) else None

    # On a busy machine fifty milliseconds may be over before the innermost hop: then the call says nothing about it.
    seen: list[list[float]] = []
    wait_until(
        lambda: seen.append(hops) or True if (hops := offered()) else False,  # type: ignore[func-returns-value]
        "a call that reached the innermost hop",
        60,  # type: ignore[func-returns-value]
    )
    at_gateway, at_executor, at_authz = seen[0]
    assert 50 >= at_gateway > at_executor > at_authz > 0


def test_grpc_deadlines_shrink_too(mesh: Mesh) -> None:
    trace = new_trace_id()
    with mesh.edge_channel() as channel:
        parent = f"00-{trace}-{new_span_id()}-00"
        invoke(channel, "echo", b'{"text":"x"}', token=mesh.token(), metadata=[("traceparent", parent)], timeout=5)
    executor, authz = mesh.calls("executor", trace)[0], mesh.calls("authz", trace)[0]
    assert 5000 > executor["deadline_ms"] > authz["deadline_ms"] > 0


@pytest.mark.parametrize("slow", ["authz", "audit"])
def test_an_expired_deadline_ends_the_work_at_every_hop(mesh: Mesh, slow: str) -> None:
    token, trace = mesh.token(), new_trace_id()
    headers = {"traceparent": f"00-{trace}-{new_span_id()}-00", "x-deadline-ms": "400"}
    with frozen(mesh, slow):
        answer = mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=token, headers=headers)
        error = answer.json()["error"]["data"]
        assert error["code"] in ("E3002", "E3801", "E3402")
        assert error["retryable"] is True
        method = "/toolmesh.executor.v1.ExecutorService/Invoke"
        wait_until(lambda: in_flight(mesh, "executor", method) == 0, "the end of the executor's work")
        wait_until(lambda: in_flight(mesh, "gateway", "rpc/tools.invoke") == 0, "the end of the gateway's work")
    assert mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=token).json().get("result")


def test_a_deadline_that_is_already_over_runs_nothing(mesh: Mesh) -> None:
    trace = new_trace_id()
    metadata = [("traceparent", f"00-{trace}-{new_span_id()}-00")]
    with mesh.edge_channel() as channel, pytest.raises(grpc.RpcError) as caught:
        invoke(channel, "echo", b'{"text":"never"}', token=mesh.token(), timeout=0.0001, metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    found = json.loads(cli("audit", "tail", "--trace", trace, "--json", state=mesh.state).stdout)["records"]
    assert [entry for entry in found if entry["record"].get("status") == "success"] == []


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1e3", "99999999"])
def test_a_deadline_that_is_none_is_refused(mesh: Mesh, value: str) -> None:
    answer = mesh.rpc("tools.list", {}, token=mesh.token(), headers={"x-deadline-ms": value})
    assert answer.json()["error"]["data"]["code"] == "E3004"


def grpc_web(mesh: Mesh, **headers: str) -> tuple[str, MeshError]:
    """Call ListTools through the edge as gRPC-Web, which lets a client send any header; return the status and error."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"content-type": "application/grpc-web+proto", "authorization": f"Bearer {mesh.token()}", **given}
    path = f"{mesh.url}/toolmesh.registry.v1.RegistryService/ListTools"
    answer = httpx.post(path, headers=sent, content=bytes(5), timeout=60)
    details = answer.headers.get("grpc-status-details-bin", "")
    status = status_pb2.Status.FromString(base64.b64decode(details + "=" * (-len(details) % 4)))
    envelope = ErrorEnvelope()
    assert any(detail.Unpack(envelope) for detail in status.details)
    return answer.headers.get("grpc-status", "0"), from_envelope(envelope)


@pytest.mark.parametrize(
    ("header", "value"),
    [("grpc_timeout", "soon"), ("grpc_timeout", "5"), ("grpc_timeout", "123456789S"), ("x_deadline_ms", "soon")],
)
def test_grpc_refuses_a_malformed_deadline_like_json_rpc(mesh: Mesh, header: str, value: str) -> None:
    status, error = grpc_web(mesh, **{header: value})
    assert (status, error.reason) == ("3", Reason.INVALID_REQUEST)
    assert [violation.path for violation in error.violations] == [header.replace("_", "-")]
    answer = mesh.rpc("tools.list", {}, token=mesh.token(), headers={header.replace("_", "-"): value})
    data = answer.json()["error"]["data"]
    assert (data["code"], [each["path"] for each in data["violations"]]) == ("E3004", [header.replace("_", "-")])


def test_grpc_keeps_a_deadline_of_milliseconds(mesh: Mesh) -> None:
    with mesh.edge_channel() as channel, pytest.raises(grpc.RpcError) as caught:
        invoke(channel, "echo", b'{"text":"x"}', token=mesh.token(), metadata=[("x-deadline-ms", "soon")], timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with mesh.edge_channel() as channel:
        invoke(channel, "echo", b'{"text":"x"}', token=mesh.token(), metadata=[("x-deadline-ms", "30000")], timeout=30)
