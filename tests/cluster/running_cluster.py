"""A cluster for tests: started by its own command in a folder of its own, asked from the machine's side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.cluster.state_folder import StateFolder, read_record

REPOSITORY = Path(__file__).resolve().parents[2]
PROBE_IMAGE = "toolmesh.local/cluster/probe:1"
_SECONDS = 3600
# What Pod Security demands of a container at the level `restricted`.
RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class RunningCluster:
    """A cluster and the ways to ask it."""

    folder: Path
    place: Path | None = None
    """The folder whose images and manifests the cluster gets. None: a folder without."""

    @property
    def state(self) -> StateFolder:
        return StateFolder(self.folder / "cluster")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs `python -m deploy.cluster`."""
        command = [sys.executable, "-m", "deploy.cluster", f"--state={self.state.root}", *words]
        variables = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(
            command,
            cwd=self.place or self.folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

    def kubectl_command(self) -> list[str]:
        """Returns the words that start kubectl on the machine, with the kubeconfig that `up` wrote."""
        record = read_record(self.state)
        assert record is not None
        return [str(Path(record.cache) / "bin" / "kubectl"), f"--kubeconfig={self.state.kubeconfig}"]

    def kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Runs kubectl on the machine."""
        command = [*self.kubectl_command(), *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=_SECONDS, check=False)

    def apply(self, *documents: dict[str, Any]) -> None:
        """Applies objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        done = self.kubectl("apply", "--filename=-", given=text)
        assert done.returncode == 0, done.stderr

    def get(self, *words: str) -> dict[str, Any]:
        """Returns an object."""
        done = self.kubectl("get", *words, "--output=json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def wait(self, *words: str) -> None:
        """Waits until `kubectl wait` or `rollout status` is content."""
        done = self.kubectl(*words, "--timeout=300s")
        assert done.returncode == 0, done.stderr + done.stdout

    def probe(self, namespace: str, pod: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Asks a question inside of a pod."""
        return self.kubectl(f"--namespace={namespace}", "exec", pod, "--", "/probe", *words)


def namespace(name: str, level: str = "restricted") -> dict[str, Any]:
    """Returns a namespace that enforces a level of Pod Security."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def pod_spec(context: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Returns a pod that serves its name on port 8080."""
    container = {
        "name": "probe",
        "image": PROBE_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", ":8080"],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": context or RESTRICTED,
    }
    return {"containers": [container], "terminationGracePeriodSeconds": 1, **changes}


def pod(space: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Returns a pod, labelled with its name."""
    metadata = {"name": name, "namespace": space, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
