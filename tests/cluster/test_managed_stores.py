"""The overlay `ha` with PostgreSQL and Valkey that are managed elsewhere, as docs/deploy.md says.

It runs last, in place of the mesh of all other tests, and puts that one back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.deployed_mesh import UPGRADE_ORDER, DeployedMesh
from tests.cluster.operator_commands import MANIFESTS, apply_manifests, deploy_from_node, kubectl, lose_everything
from tests.cluster.running_cluster import namespace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
MANAGED = "managed"
# Managed servers have addresses, and none of the mesh's labels.
ADDRESSES = {"postgres": "10.96.0.54", "valkey": "10.96.0.63"}
SERVERS = ("--database=10.96.0.54:5432", "--redis=10.96.0.63:6379")


def secret(mesh: DeployedMesh, name: str) -> dict[str, Any]:
    """Returns a secret without what the API server added."""
    found = mesh.cluster.get("--namespace=toolmesh", "secret", name)
    return {each: found[each] for each in ("apiVersion", "kind", "type", "data")}


def start_managed_stores(mesh: DeployedMesh) -> None:
    """Runs the servers in a namespace of their own, which no policy of the mesh knows."""
    mesh.cluster.apply(namespace(MANAGED))
    for name in ("postgres-admin", "valkey-config"):
        mesh.cluster.apply({**secret(mesh, name), "metadata": {"name": name, "namespace": MANAGED}})
    for name, address in ADDRESSES.items():
        for document in yaml.safe_load_all((MANIFESTS / "stores" / f"{name}.yaml").read_text()):
            document["metadata"]["namespace"] = MANAGED
            if document["kind"] == "Service":
                document["spec"]["clusterIP"] = address
            mesh.cluster.apply(document)
        mesh.cluster.wait(f"--namespace={MANAGED}", "rollout", "status", f"statefulset/{name}")


@pytest.fixture
def highly_available(mesh: DeployedMesh, tmp_path: Path) -> Iterator[DeployedMesh]:
    """A mesh that was set up by the commands of the page."""
    lose_everything(mesh)
    try:
        apply_manifests(mesh, "common")
        deploy_from_node(mesh, "init-certs")
        deploy_from_node(mesh, "init-secrets", *SERVERS)
        start_managed_stores(mesh)
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
