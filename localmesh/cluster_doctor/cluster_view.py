"""What the API server says of the mesh: workloads, pods, jobs, scalers and certificates."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from localmesh.cluster_doctor.service_metrics import ServiceMetrics, read_service_metrics
from localmesh.deploy.api_failures import explain_failures

SERVICES = ("gateway", "registry", "authz", "executor", "approval", "audit")
_TLS_SUFFIX, _AUTHORITY = "-tls", "mesh-ca"


@dataclass(frozen=True, slots=True)
class Workload:
    """A deployment or a daemon set."""

    namespace: str
    name: str
    wanted: int
    ready: int
    updated: int
    """The pods of its newest revision."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod and what keeps it from running."""

    namespace: str
    name: str
    started: datetime | None
    """When the first of its running containers started; None if none runs."""
    waiting: str = ""
    """The reason of the first container that waits to start, such as `CrashLoopBackOff`."""
    restarts: int = 0
    certificates: tuple[str, ...] = ()
    """The secrets of the certificates that its containers mount."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job, such as the migrations of a service."""

    namespace: str
    name: str
    complete: bool
    failed: int
    """How many of its pods have failed."""


@dataclass(frozen=True, slots=True)
class Scaler:
    """A horizontal autoscaler."""

    namespace: str
    name: str
    current: int
    most: int
    problem: str = ""
    """Why it cannot scale; empty if it can."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate in a secret, in PEM."""

    namespace: str
    secret: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The mesh as the API server saw it at one moment."""

    workloads: Sequence[Workload] = ()
    pods: Sequence[Pod] = ()
    jobs: Sequence[Job] = ()
    scalers: Sequence[Scaler] = ()
    certificates: Sequence[Certificate] = ()
    metrics: Sequence[ServiceMetrics] = ()


def read_cluster(namespaces: Sequence[str], context: str = "") -> ClusterView:
    """Ask the cluster of a context of the kubeconfig; empty for the current one. Raises ClusterUnreachableError."""
    with explain_failures():
        import kubernetes  # most commands do without, and it takes a second to load

        config: Any = kubernetes.config
        config.load_kube_config(context=context or None)
        return _read(kubernetes.client, namespaces)


def _read(models: Any, namespaces: Sequence[str]) -> ClusterView:
    settings = models.Configuration.get_default_copy()
    settings.retries = False
    client = models.ApiClient(settings)
    core, apps = models.CoreV1Api(client), models.AppsV1Api(client)
    batch, scaling = models.BatchV1Api(client), models.AutoscalingV2Api(client)
    listed: Any = {"_request_timeout": 10}
    workloads, pods, jobs, scalers, certificates, metrics = [], [], [], [], [], []
    for name in namespaces:
        workloads += [_deployment(each) for each in apps.list_namespaced_deployment(name, **listed).items]
        workloads += [_daemon_set(each) for each in apps.list_namespaced_daemon_set(name, **listed).items]
        found = core.list_namespaced_pod(name, **listed).items
        pods += [_pod(each) for each in found]
        metrics += list(read_service_metrics(core, found, SERVICES))
        jobs += [_job(each) for each in batch.list_namespaced_job(name, **listed).items]
        scalers += [_scaler(each) for each in scaling.list_namespaced_horizontal_pod_autoscaler(name, **listed).items]
        certificates += list(_certificates(core.list_namespaced_secret(name, **listed).items))
    return ClusterView(workloads, pods, jobs, scalers, certificates, metrics)


def _deployment(each: Any) -> Workload:
    status = each.status
    ready, updated = status.ready_replicas or 0, status.updated_replicas or 0
    return Workload(each.metadata.namespace, each.metadata.name, each.spec.replicas or 0, ready, updated)


def _daemon_set(each: Any) -> Workload:
    status = each.status
    wanted, ready = status.desired_number_scheduled or 0, status.number_ready or 0
    return Workload(each.metadata.namespace, each.metadata.name, wanted, ready, status.updated_number_scheduled or 0)


def _pod(each: Any) -> Pod:
    containers = [*(each.status.init_container_statuses or ()), *(each.status.container_statuses or ())]
    waiting = [item.state.waiting.reason for item in containers if item.state and item.state.waiting]
    # What a pod that is on its way shows is no problem.
    reasons = [reason for reason in waiting if reason not in (None, "PodInitializing", "ContainerCreating")]
    running = [item.state.running for item in each.status.container_statuses or () if item.state]
    started = [state.started_at for state in running if state and state.started_at]
    mounted = [volume.secret.secret_name for volume in each.spec.volumes or () if volume.secret]
    return Pod(
        each.metadata.namespace,
        each.metadata.name,
        min(started, default=None),
        reasons[0] if reasons else "",
        sum(item.restart_count for item in containers),
        tuple(secret for secret in mounted if secret.endswith(_TLS_SUFFIX)),
    )


def _job(each: Any) -> Job:
    complete = any(item.type == "Complete" and item.status == "True" for item in each.status.conditions or ())
    return Job(each.metadata.namespace, each.metadata.name, complete, each.status.failed or 0)


def _scaler(each: Any) -> Scaler:
    idle = [item for item in each.status.conditions or () if item.type == "ScalingActive" and item.status != "True"]
    problem = (idle[0].reason or "unknown") if idle else ""
    current, most = each.status.current_replicas or 0, each.spec.max_replicas
    return Scaler(each.metadata.namespace, each.metadata.name, current, most, problem)


def _certificates(secrets: Sequence[Any]) -> Iterator[Certificate]:
    for each in secrets:
        name, content = each.metadata.name, (each.data or {}).get("tls.crt")
        if content and (name.endswith(_TLS_SUFFIX) or name == _AUTHORITY):
            yield Certificate(each.metadata.namespace, name, base64.b64decode(content))
