"""The life of a process, seen from outside: start, readiness, SIGTERM under work, and the hard limit."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from tests.harness.stores import free_port

Environment = Callable[[str], dict[str, str]]


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def answers(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310  (a loopback address of this test)
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextmanager
def service(environment: dict[str, str], folder: Path, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*before, sys.executable, "-m", "libs.common.tests.drain_service", str(folder)]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOOLMESH_")}
    process = subprocess.Popen(
        command, env={**inherited, **environment}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def environment(process_environment: Environment) -> dict[str, str]:
    ports = {"TOOLMESH_LISTEN": f"127.0.0.1:{free_port()}", "TOOLMESH_OPS_LISTEN": f"127.0.0.1:{free_port()}"}
    return {**process_environment("audit"), **ports}


@pytest.fixture
def channel(environment: dict[str, str], pki: Any) -> Iterator[grpc.Channel]:
    operator = pki.of("operator")
    credentials = grpc.ssl_channel_credentials(
        pki.ca.read_bytes(), operator.key.read_bytes(), operator.cert.read_bytes()
    )
    options = [("grpc.ssl_target_name_override", "audit")]
    with grpc.secure_channel(environment["TOOLMESH_LISTEN"], credentials, options=options) as opened:
        yield opened


def test_sigterm_lets_accepted_work_finish_and_refuses_new_work(
    environment: dict[str, str], channel: grpc.Channel, tmp_path: Path
) -> None:
    ready = f"http://{environment['TOOLMESH_OPS_LISTEN']}/readyz"
    with service({**environment, "TOOLMESH_DRAIN_SECONDS": "20"}, tmp_path) as process:
        wait_for(lambda: answers(ready) == 200)
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)  # type: ignore[attr-defined]
        assert next(health).status == health_pb2.HealthCheckResponse.SERVING
        accepted = rpc.AuditServiceStub(channel).GetCheckpoint.future(pb.GetCheckpointRequest(), timeout=30)
        wait_for((tmp_path / "begun").exists)
        process.send_signal(signal.SIGTERM)
        assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
        wait_for(lambda: answers(ready) == 503)
        assert process.poll() is None
        health.cancel()
        (tmp_path / "go").touch()
        accepted.result()
        assert process.wait(10) == 0


def test_what_does_not_end_is_ended_at_the_limit(
    environment: dict[str, str], channel: grpc.Channel, tmp_path: Path
) -> None:
    ready = f"http://{environment['TOOLMESH_OPS_LISTEN']}/readyz"
    with service({**environment, "TOOLMESH_DRAIN_SECONDS": "0.2"}, tmp_path) as process:
        wait_for(lambda: answers(ready) == 200)
        stuck = rpc.AuditServiceStub(channel).GetCheckpoint.future(pb.GetCheckpointRequest(), timeout=30)
        wait_for((tmp_path / "begun").exists)
        process.send_signal(signal.SIGTERM)
        process.wait(15)
        with pytest.raises(grpc.RpcError):
            stuck.result()


def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(
    environment: dict[str, str], channel: grpc.Channel, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        telemetry = {
            "TOOLMESH_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "TOOLMESH_TRACE_SAMPLE_RATIO": "1",
        }
        with service({**environment, **telemetry, "TOOLMESH_DRAIN_SECONDS": "0.2"}, tmp_path) as process:
            wait_for(lambda: answers(f"http://{environment['TOOLMESH_OPS_LISTEN']}/readyz") == 200)
            rpc.AuditServiceStub(channel).GetCheckpoint(pb.GetCheckpointRequest(), timeout=30)
            process.send_signal(signal.SIGTERM)
            # A collector is asked for ten seconds, and more than once.
            assert process.wait(8) == 0


def test_operators_are_answered_over_ipv6_too(environment: dict[str, str], tmp_path: Path) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as probe:
            port = probe.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6")
    with service({**environment, "TOOLMESH_OPS_LISTEN": f"[::1]:{port}"}, tmp_path):
        wait_for(lambda: answers(f"http://[::1]:{port}/readyz") == 200)


def test_wrong_settings_end_it_at_once_with_their_names(environment: dict[str, str], tmp_path: Path) -> None:
    wrong = {**environment, "TOOLMESH_DRAIN_SECONDS": "forever", "TOOLMESH_LISTNE": "x"}
    with service(wrong, tmp_path) as process:
        _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert b"TOOLMESH_DRAIN_SECONDS" in said
    assert b"TOOLMESH_LISTNE" in said


def test_metrics_are_always_there(environment: dict[str, str], tmp_path: Path) -> None:
    base = f"http://{environment['TOOLMESH_OPS_LISTEN']}"
    with service(environment, tmp_path):
        wait_for(lambda: answers(f"{base}/readyz") == 200)
        assert answers(f"{base}/livez") == 200
        assert answers(f"{base}/metrics") == 200
        assert answers(f"{base}/nothing") == 404


def test_a_process_opens_as_many_files_as_it_may(environment: dict[str, str], tmp_path: Path) -> None:
    ready = f"http://{environment['TOOLMESH_OPS_LISTEN']}/readyz"
    few = ("/bin/sh", "-c", 'ulimit -Sn 256; ulimit -Hn 4000; exec "$@"', "sh")
    with service(environment, tmp_path, *few) as process:
        wait_for(lambda: answers(ready) == 200)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (4000, 4000)
