"""Describes the pod of one tool process. Pure.

Two containers share the volumes with the tool's files: `loader` writes them and ends, and the tool's container `tool`
can only read them. Neither has a token, a capability or a writable root; the pod passes Pod Security `restricted`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.pods.inside import first_process
from services.executor.adapters.sandbox.pods.pod_api import LeaseState
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import HOSTNAME, NOBODY

TOOL, LOADER = "tool", "loader"
EXECUTOR_LABEL, KIND_LABEL = "toolmesh.io/executor", {"app.kubernetes.io/name": "tool"}
AGENT_FOLDER = "/toolmesh-agent"
OVERHEAD_BYTES = 64 << 20
"""Memory of the agent and the first process, in addition to the limit of the plan."""
MAX_SECONDS = 86_400
"""The longest life of a pod. Deadlines of calls are kept by the executor; this ends what it lost sight of."""
_UNUSED_SECONDS = 120
_LOADER_BYTES = 64 << 20
_SLACK_BYTES = 16 << 20
_MARK = "toolmesh-agent"
_FIRST_PROCESS = Path(first_process.__file__).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class PodConfig:
    """The deployment's settings for pods."""

    namespace: str
    image: str
    python: str
    """The interpreter in the image."""
    runtime_class: str = ""
    """The RuntimeClass of the pods; empty for the cluster's default, inside a user namespace."""
    hidden: tuple[str, ...] = ("/app",)
    """Folders of the image that tools see empty."""


def describe_pod(
    config: PodConfig, name: str, executor: str, owner: LeaseState, plan: Plan, folders: Sequence[str], files_bytes: int
) -> dict[str, Any]:
    """Return the pod of a plan. `folders` are the paths inside of its files, which have `files_bytes` together."""
    volumes, loaded = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, folder in enumerate(folders):
        volumes.append({"name": f"files-{number}", "emptyDir": {"sizeLimit": str(files_bytes + _SLACK_BYTES)}})
        loaded.append({"name": f"files-{number}", "mountPath": folder})
    volumes += [
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": str(plan.scratch_bytes)}},
        {"name": "empty", "emptyDir": {"medium": "Memory", "sizeLimit": "4Ki"}},
    ]
    mounts = [{**mount, "readOnly": True} for mount in loaded]
    mounts += [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108
    mounts += [{"name": "empty", "mountPath": path, "readOnly": True} for path in ("/dev/shm", *config.hidden)]  # noqa: S108
    if plan.egress_socket:
        volumes.append({"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "64Ki"}})
        mounts.append({"name": "run", "mountPath": "/run"})
    disk = files_bytes + len(folders) * _SLACK_BYTES + _SLACK_BYTES
    tool_memory = plan.memory_bytes + OVERHEAD_BYTES
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": MAX_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": HOSTNAME,
        # The tool resolves no names; a pod needs a server that answers, or none.
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            _container(config, TOOL, mounts, tool_memory, plan.millicpus, disk),
            _container(config, LOADER, loaded, _LOADER_BYTES, 1000, disk),
        ],
        "volumes": volumes,
    }
    if config.runtime_class:
        spec["runtimeClassName"] = config.runtime_class
    else:
        # Its own user namespace, where the number of processes is limited for it alone.
        spec["hostUsers"] = False
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": config.namespace,
            "labels": {**KIND_LABEL, "app.kubernetes.io/part-of": "toolmesh", EXECUTOR_LABEL: executor},
            "ownerReferences": [
                {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": owner.name, "uid": owner.uid}
            ],
        },
        "spec": spec,
    }


def _container(
    config: PodConfig, name: str, mounts: list[dict[str, Any]], memory: int, millicpus: int, disk: int
) -> dict[str, Any]:
    limits = {"memory": str(memory), "cpu": f"{millicpus}m", "ephemeral-storage": str(disk)}
    return {
        "name": name,
        "image": config.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [config.python, "-I", "-S", "-B", "-c", _FIRST_PROCESS, str(_UNUSED_SECONDS), _MARK],
        "workingDir": "/",
        # What a tool asks for is seldom all used; the limits hold all the same.
        "resources": {"requests": {"memory": str(memory // 2), "cpu": "10m"}, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
