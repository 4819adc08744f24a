"""`toolmesh deploy upgrade` on a real cluster: what works stays, what does not start or fails calls is undone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import yaml

from deploy.cluster.node.entry import enter_node
from tests.cluster.deployed_mesh import DeployedMesh
from tests.cluster.running_cluster import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
IMAGE = "registry.local/toolmesh/{}:{}"
VERSION = "0.1.0"


def upgrade(mesh: DeployedMesh, *words: str) -> subprocess.CompletedProcess[str]:
    program = mesh.cluster.kubectl_command()[0]
    variables = {
        **os.environ,
        "KUBECONFIG": str(mesh.cluster.state.kubeconfig),
        "PATH": f"{Path(program).parent}:{os.environ['PATH']}",
    }
    command = [str(Path(sys.executable).with_name("toolmesh")), "deploy", "upgrade", *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def image_of(mesh: DeployedMesh, part: str) -> str:
    path = "jsonpath={.spec.template.spec.containers[0].image}"
    return mesh.kubectl(part, "get", f"deployment/{part}", f"--output={path}")


def names(mesh: DeployedMesh, part: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in mesh.pods(part)}


@contextmanager
def json_rpc_load(mesh: DeployedMesh, token: str) -> Iterator[None]:
    """Calls a tool through the gateway while the block runs; the steady load does without it."""
    ended = threading.Event()
    headers = {"authorization": f"Bearer {token}"}
    call = {"tool": "core.echo", "arguments": {"text": "hello"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools.invoke", "params": call}

    def call_on(url: str) -> None:
        with httpx.Client(headers=headers, timeout=30) as client:
            while not ended.wait(0.05):
                with suppress(httpx.HTTPError):
                    client.post(url, json=body)

    with mesh.forward("service/edge", 8080) as port:
        thread = threading.Thread(target=call_on, args=(f"http://localhost:{port}/rpc",))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def test_a_version_that_serves_stays(mesh: DeployedMesh, token: str) -> None:
    first, second = (IMAGE.format("gateway", version) for version in (VERSION, "0.1.0-again"))
    enter_node(mesh.cluster.state).run("ctr", "--namespace=k8s.io", "images", "tag", "--force", first, second)
    with mesh.steady_load(token) as load:
        load.wait_for_calls()
        done = upgrade(mesh, f"--image=gateway={second}", "--window=10")
        assert done.returncode == 0, done.stdout + done.stderr
        assert image_of(mesh, "gateway") == second
        # Calls were counted, so that there was something to judge by.
        assert "of 0 calls" not in done.stdout
        assert "no calls" not in done.stdout
        assert upgrade(mesh, f"--image=gateway={first}", "--window=5").returncode == 0
    load.require_no_failure()


def test_an_image_that_does_not_start_is_undone_and_no_call_fails(mesh: DeployedMesh, token: str) -> None:
    before = names(mesh, "authz")
    with mesh.steady_load(token) as load:
        load.wait_for_calls()
        done = upgrade(mesh, f"--image=authz={IMAGE.format('authz', 'absent')}", "--rollout=20", "--window=5")
        assert done.returncode == 1
    load.require_no_failure()
    assert image_of(mesh, "authz") == IMAGE.format("authz", VERSION)
    assert names(mesh, "authz") == before


def test_a_version_that_fails_calls_is_undone(mesh: DeployedMesh, token: str, tmp_path: Path) -> None:
    """Its pods become ready, and answer every call with an error."""
    local = os.path.relpath(REPOSITORY / "deploy" / "k8s" / "overlays" / "local", tmp_path.resolve())
    address = {"name": "TOOLMESH_EXECUTOR_ADDRESS", "value": "nowhere.toolmesh:8443"}
    container = {"name": "service", "env": [address]}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gateway"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    target = {"kind": "Deployment", "name": "gateway"}
    kustomization = {"resources": [local], "patches": [{"target": target, "patch": yaml.safe_dump(patch)}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    with json_rpc_load(mesh, token):
        done = upgrade(mesh, f"--overlay={tmp_path}", "--window=15")
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("undoing") == 1
    assert "nowhere" not in mesh.kubectl("gateway", "get", "deployment/gateway", "--output=yaml").partition("spec:")[2]
    assert "hello" in mesh.call(token, "call", "echo", '{"text": "hello"}')
