"""What an operator does to a whole mesh: the commands of `toolmesh deploy`, and the loss of everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deploy.cluster.node.entry import enter_node
from tests.cluster.deployed_mesh import DeployedMesh
from tests.cluster.running_cluster import REPOSITORY

NAMESPACES = ("toolmesh", "toolmesh-executor")
MANIFESTS = REPOSITORY / "deploy" / "k8s"
_TOOLMESH = str(Path(sys.executable).with_name("toolmesh"))


def deploy(mesh: DeployedMesh, *words: str) -> str:
    """Runs `toolmesh deploy` on the machine."""
    return _run([_TOOLMESH, "deploy", *words], {**os.environ, "KUBECONFIG": str(mesh.cluster.state.kubeconfig)})


def deploy_from_node(mesh: DeployedMesh, *words: str) -> str:
    """Runs `toolmesh deploy` where addresses of the cluster are reached."""
    return _run(enter_node(mesh.cluster.state).command([_TOOLMESH, "deploy", *words]), dict(os.environ))


def kubectl(mesh: DeployedMesh, *words: str) -> None:
    """Runs kubectl."""
    done = mesh.cluster.kubectl(*words)
    assert done.returncode == 0, done.stderr


def apply_manifests(mesh: DeployedMesh, folder: str) -> None:
    """Applies a folder of the manifests."""
    kubectl(mesh, "apply", f"--kustomize={MANIFESTS / folder}")


def lose_everything(mesh: DeployedMesh) -> None:
    """Deletes all pods at once, then the namespaces with all that is in them."""
    for namespace in NAMESPACES:
        kubectl(mesh, "delete", f"--namespace={namespace}", "deployments,statefulsets,jobs", "--all")
        kubectl(mesh, "delete", f"--namespace={namespace}", "pods", "--all", "--grace-period=0", "--force")
    kubectl(mesh, "delete", "namespaces", *NAMESPACES)


def _run(command: list[str], variables: dict[str, str]) -> str:
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
