"""The overlay `ha` with PostgreSQL and Valkey that are managed elsewhere and have TLS, as docs/deploy.md says.

It runs last, in place of the mesh of all other tests, and puts that one back.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.deployed_mesh import UPGRADE_ORDER, DeployedMesh
from tests.cluster.operator_commands import MANIFESTS, apply_manifests, deploy_from_node, kubectl, lose_everything
from tests.cluster.running_cluster import namespace
from tests.harness.servers import tls_front
from tests.harness.servers.certificates import make_certificate

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
MANAGED = "managed"
# Managed servers have addresses, and none of the mesh's labels.
ADDRESSES = {"postgres": "10.96.0.54", "valkey": "10.96.0.63"}
PORTS = {"postgres": 5432, "valkey": 6379}
SERVERS = ("--database=10.96.0.54:5432", "--redis=10.96.0.63:6379")


def secret(mesh: DeployedMesh, name: str) -> dict[str, Any]:
    """Returns a secret without what the API server added."""
    found = mesh.cluster.get("--namespace=toolmesh", "secret", name)
    return {each: found[each] for each in ("apiVersion", "kind", "type", "data")}


def start_managed_stores(mesh: DeployedMesh, certificate: Path, key: Path) -> None:
    """Runs the servers in a namespace that no policy of the mesh knows. Their addresses have TLS alone."""
    mesh.cluster.apply(namespace(MANAGED))
    files = (certificate, key, Path(tls_front.__file__))
    kept = {file.name: base64.b64encode(file.read_bytes()).decode() for file in files}
    mesh.cluster.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": MANAGED}, "data": kept}
    )
    for name in ("postgres-admin", "valkey-config"):
        mesh.cluster.apply({**secret(mesh, name), "metadata": {"name": name, "namespace": MANAGED}})
    for name, address in ADDRESSES.items():
        for document in yaml.safe_load_all((MANIFESTS / "stores" / f"{name}.yaml").read_text()):
            document["metadata"]["namespace"] = MANAGED
            mesh.cluster.apply(document)
        for document in tls_before(name, address):
            mesh.cluster.apply(document)
        for workload in (f"statefulset/{name}", f"deployment/{name}-tls"):
            mesh.cluster.wait(f"--namespace={MANAGED}", "rollout", "status", workload)


def tls_before(name: str, address: str) -> list[dict[str, Any]]:
    """Returns TLS before a server: its pod, and the address of both."""
    labels, port = {"app.kubernetes.io/name": f"{name}-tls"}, PORTS[name]
    metadata = {"name": f"{name}-tls", "namespace": MANAGED, "labels": labels}
    words = ["/front/tls_front.py", str(port), f"{name}.{MANAGED}", str(port), "/front/stores.pem", "/front/stores.key"]
    words += ["--postgres"] if name == "postgres" else []
    container = {
        "name": "tls",
        "image": "registry.local/toolmesh/gateway:0.1.0",
        "command": ["/app/venv/bin/python", *words],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "front", "mountPath": "/front", "readOnly": True}],
    }
    pod = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "front", "secret": {"secretName": "tls"}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "clusterIP": address, "ports": [{"port": port}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]


@pytest.fixture
def highly_available(mesh: DeployedMesh, tmp_path: Path) -> Iterator[DeployedMesh]:
    """A mesh that was set up by the commands of the page."""
    lose_everything(mesh)
    try:
        apply_manifests(mesh, "common")
        deploy_from_node(mesh, "init-certs")
        certificate, key = make_certificate(tmp_path, "stores", *(f"IP:{each}" for each in ADDRESSES.values()))
        deploy_from_node(mesh, "init-secrets", *SERVERS, f"--stores-ca={certificate}")
        start_managed_stores(mesh, certificate, key)
        deploy_from_node(mesh, "init-db")
        public = {**secret(mesh, "edge-tls"), "metadata": {"name": "edge-public-tls", "namespace": "toolmesh"}}
        mesh.cluster.apply(public)
        apply_manifests(mesh, "overlays/ha")
        mesh.wait_for(*UPGRADE_ORDER)
        yield DeployedMesh(mesh.cluster, tmp_path)
    finally:
        lose_everything(mesh)
        kubectl(mesh, "delete", "namespace", MANAGED)
        apply_manifests(mesh, "overlays/local")


def test_a_mesh_on_managed_servers_has_two_of_each_service_and_answers(highly_available: DeployedMesh) -> None:
    for part in UPGRADE_ORDER:
        assert len(highly_available.pods(part)) >= 2
    token = highly_available.mint()
    called = json.loads(highly_available.call(token, "call", "echo", '{"text": "hello"}', "--json"))
    assert called["invocation_id"] in highly_available.call(token, "audit", "tail", "--json")
    highly_available.call(token, "audit", "verify")
    # The only stores are those outside.
    stores = [pod["metadata"]["name"] for name in ADDRESSES for pod in highly_available.pods(name)]
    assert stores == []
