"""Fixtures of the cluster's tests: one cluster with the whole mesh for all modules, ended after the last test.

RUNNING_CLUSTER names the state folder of a cluster that runs already (`.toolmesh/cluster` after `make cluster-up`). It
is used and left running.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster.node.control_groups import group_name
from deploy.cluster.up import IMAGES
from tests.cluster.deployed_mesh import UPGRADE_ORDER, DeployedMesh
from tests.cluster.machine import groups_named, processes_of, read_machine
from tests.cluster.running_cluster import REPOSITORY, RunningCluster
from tests.cluster.waiting import wait_until

_REPLACE_THE_MESH = ("test_restore.py", "test_managed_stores.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves to the end what replaces the mesh: it makes the tokens and the counts of all other tests void."""
    items.sort(key=lambda item: _REPLACE_THE_MESH.index(item.path.name) if item.path.name in _REPLACE_THE_MESH else -1)


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedMesh]:
    """The whole mesh on a cluster, from the images and manifests of this checkout."""
    if running := os.environ.get("RUNNING_CLUSTER"):
        yield DeployedMesh(RunningCluster(Path(running).absolute().parent, REPOSITORY), tmp_path_factory.mktemp("mesh"))
        return
    assert list((REPOSITORY / IMAGES).glob("*.tar")), "there are no images: make images"
    before = read_machine()
    cluster = RunningCluster(tmp_path_factory.mktemp("cluster-mesh"), REPOSITORY)
    try:
        started = cluster.command("up")
        assert started.returncode == 0, started.stdout + started.stderr
        yield DeployedMesh(cluster, tmp_path_factory.mktemp("mesh"))
    finally:
        ended = cluster.command("down")
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: processes_of(cluster.state.root) == [])
    assert groups_named(group_name(cluster.state.root)) == []
    assert read_machine() == before
    assert [path.name for path in cluster.state.root.iterdir()] == ["log"]


@pytest.fixture(scope="session")
def token(mesh: DeployedMesh) -> str:
    """The token of a caller, with the tools of the example packs registered."""
    minted = mesh.mint()
    mesh.call(minted, "tools", "register", str(REPOSITORY / "examples" / "packs" / "textkit" / "manifests"))
    return minted


@pytest.fixture(scope="session")
def pairs(mesh: DeployedMesh) -> DeployedMesh:
    """Two pods of each service, so that one can be lost, and no more, so that one small node has room for them."""
    for service in UPGRADE_ORDER:
        mesh.kubectl(service, "patch", "hpa", service, "--patch", '{"spec": {"minReplicas": 2, "maxReplicas": 2}}')
    wait_until(lambda: all(len(mesh.pods(service)) == 2 for service in UPGRADE_ORDER))
    mesh.wait_for(*UPGRADE_ORDER)
    return mesh
