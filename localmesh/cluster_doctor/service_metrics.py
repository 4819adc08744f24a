"""What the services' own metrics say: records that wait for the log's stream, acts that wait for the log, circuits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from toolmesh_sdk.cli.views.doctor_checks import OK, WARN, Check

from localmesh.deploy.pod_proxy import get_from_pod, is_ready

RELAY_LAG = "toolmesh_audit_relay_seconds_behind"
WAITING_ACTS = "toolmesh_act_outbox_depth"
SHARED_CIRCUITS = "toolmesh_circuits_shared"
OPENED_CIRCUITS = "toolmesh_circuit_transitions_total"
_PORT, _PATH = 9090, "metrics"
_LATE_SECONDS, _MANY_ACTS = 60, 100


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """The metrics of one pod that the checks read, by name."""

    pod: str
    values: Mapping[str, float] = field(default_factory=dict)


def read_service_metrics(core: Any, pods: Sequence[Any], services: Sequence[str]) -> Iterator[ServiceMetrics]:
    """Ask every ready pod of the services. One that cannot be asked is left out."""
    import kubernetes  # most commands do without, and it takes a second to load

    failure: Any = kubernetes.client.ApiException
    for pod in pods:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        if (pod.metadata.labels or {}).get("app.kubernetes.io/name") in services and is_ready(pod):
            try:
                yield ServiceMetrics(name, parse_metrics(get_from_pod(core, namespace, name, _PORT, _PATH)))
            except failure:
                continue


def parse_metrics(text: str) -> dict[str, float]:
    """Return the values that the checks read. Of changes of circuits only those to open count."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            wanted = sample.name in (RELAY_LAG, WAITING_ACTS, SHARED_CIRCUITS)
            if wanted or (sample.name == OPENED_CIRCUITS and sample.labels.get("state") == "open"):
                found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def check_service_metrics(metrics: Sequence[ServiceMetrics]) -> Iterator[Check]:
    """Judge lag and circuits."""
    if not metrics:
        advice = "You need the right to get pods/proxy, and the API server must reach port 9090 of the pods."
        yield Check("metrics", WARN, "no service could be asked", advice)
        return
    yield _relay(max(_values(metrics, RELAY_LAG), default=0))
    yield _acts(sum(_values(metrics, WAITING_ACTS)))
    yield _circuits(metrics)


def _values(metrics: Sequence[ServiceMetrics], name: str) -> list[float]:
    return [each.values[name] for each in metrics if name in each.values]


def _relay(seconds: float) -> Check:
    detail = f"the stream of records is {seconds:.0f} s behind the log"
    advice = "Read `kubectl -n toolmesh logs deployment/audit`: the stream's server may be away."
    return Check("relay", WARN, detail, advice) if seconds > _LATE_SECONDS else Check("relay", OK, detail)


def _acts(depth: float) -> Check:
    detail = f"{depth:.0f} acts of administrators wait for the log"
    advice = "Look at audit: services keep the acts in their databases until it takes them."
    return Check("acts", WARN, detail, advice) if depth > _MANY_ACTS else Check("acts", OK, detail)


def _circuits(metrics: Sequence[ServiceMetrics]) -> Check:
    alone = [each.pod for each in metrics if each.values.get(SHARED_CIRCUITS) == 0]
    opened = sum(_values(metrics, OPENED_CIRCUITS))
    detail = f"opened {opened:.0f} times since the executors started; `toolmesh upstreams show` has those of now"
    if not alone:
        return Check("circuits", OK, detail)
    advice = "Look at Valkey: until it answers, each executor counts the failures of services alone."
    return Check("circuits", WARN, f"not shared by {', '.join(sorted(alone))}; {detail}", advice)
