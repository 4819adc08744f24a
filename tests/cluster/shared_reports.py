"""One volume of reports for all executors, whose files count the effects of writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deploy.cluster.node.entry import enter_node
from tests.cluster.deployed_mesh import DeployedMesh, namespace_of
from tests.cluster.running_cluster import REPOSITORY

_EXAMPLE = REPOSITORY / "examples" / "packs" / "textkit" / "manifests" / "write_report.json"
_NAME = "shared-reports"
# In the node, on a file system whose mounts can map user ids, as pods with user namespaces need.
_FOLDER = "/var/lib/kubelet/shared-reports"
_OWN = {"name": "reports", "emptyDir": {"sizeLimit": "1Gi"}}
_SHARED = {"name": "reports", "persistentVolumeClaim": {"claimName": _NAME}}


class SharedReports:
    """The volume `reports` as a folder of the node, for every pod of the executor."""

    def __init__(self, mesh: DeployedMesh) -> None:
        self._mesh = mesh

    def mount(self) -> None:
        """Gives the folder to the executors. In staging, trusted callers write without an approval."""
        enter_node(self._mesh.cluster.state).run("install", "--directory", "--mode=777", _FOLDER)
        self._mesh.cluster.apply(*_volume())
        self._replace_volume(_SHARED)
        self._set_environment("staging")

    def register_writer(self, token: str, folder: Path) -> None:
        """Registers the example that writes them, with time for a cold start on a busy node."""
        manifest = json.loads(_EXAMPLE.read_text())
        manifest["tool_id"] = "write_shared_report"
        manifest["execution"] |= {"timeout_class": "long_running", "timeout_default": "30s"}
        (folder / _EXAMPLE.name).write_text(json.dumps(manifest))
        self._mesh.call(token, "tools", "register", str(folder))

    def unmount(self) -> None:
        """Gives the executors volumes of their own again."""
        self._set_environment("prod")
        self._replace_volume(_OWN)
        self._mesh.kubectl("executor", "delete", f"pvc/{_NAME}", "--ignore-not-found")
        self._mesh.cluster.kubectl("delete", f"pv/{_NAME}", "--ignore-not-found")
        enter_node(self._mesh.cluster.state).run("rm", "--recursive", "--force", _FOLDER)

    def written(self) -> set[str]:
        """Returns the names of the reports."""
        found = enter_node(self._mesh.cluster.state).run("find", _FOLDER, "-name", "*.md", "-printf", r"%f\n")
        return {name.removesuffix(".md") for name in found.split()}

    def _replace_volume(self, volume: dict[str, Any]) -> None:
        deployment = self._mesh.cluster.get(f"--namespace={namespace_of('executor')}", "deployment", "executor")
        names = [each["name"] for each in deployment["spec"]["template"]["spec"]["volumes"]]
        path = f"/spec/template/spec/volumes/{names.index('reports')}"
        change = json.dumps([{"op": "replace", "path": path, "value": volume}])
        self._mesh.replace_pods("executor", "patch", "deployment/executor", "--type=json", f"--patch={change}")

    def _set_environment(self, name: str) -> None:
        words = ("--containers=service", f"TOOLMESH_ENVIRONMENT={name}")
        self._mesh.replace_pods("authz", "set", "env", "deployment/authz", *words)


def _volume() -> tuple[dict[str, Any], dict[str, Any]]:
    space = namespace_of("executor")
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _NAME},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": _FOLDER},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": space, "name": _NAME},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _NAME, "namespace": space},
        "spec": {**common, "volumeName": _NAME, "resources": {"requests": {"storage": "1Gi"}}},
    }
    return volume, claim
