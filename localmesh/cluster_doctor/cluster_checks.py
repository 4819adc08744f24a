"""The checks of `toolmesh deploy doctor`. Pure: a check reads a view of the cluster and gives advice for a problem."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from cryptography import x509
from toolmesh_sdk.cli.views.doctor_checks import FAIL, OK, WARN, Check

from libs.common.auth.peers import EDGE
from localmesh.cluster_doctor.cluster_view import SERVICES, Certificate, ClusterView, Job, Pod, Scaler, Workload
from localmesh.cluster_doctor.service_metrics import check_service_metrics
from localmesh.deploy.layout import Namespaces, tls_secret
from localmesh.state.pki import IDENTITIES

_PARTS = (*SERVICES, "envoy")
# `init-certs` renews what ends within 30 days: a cluster in which it runs every week never has this problem.
_SOON = timedelta(days=21)
_MANY_RESTARTS = 5


def check_cluster(view: ClusterView, namespaces: Namespaces, now: datetime) -> Iterator[Check]:
    """Run all checks, in the order in which problems should be fixed."""
    yield from _certificates(view, namespaces, now)
    yield from (_job(job) for job in view.jobs)
    workloads = {(each.namespace, each.name): each for each in view.workloads}
    for part in _PARTS:
        yield _part(part, workloads.pop((namespaces.of(part), part), None))
    yield from (_workload(each.name, each) for each in workloads.values())
    yield from (_pod(pod) for pod in view.pods if pod.waiting or pod.restarts >= _MANY_RESTARTS)
    yield from (_scaler(scaler) for scaler in view.scalers)
    yield from check_service_metrics(view.metrics)


def _certificates(view: ClusterView, namespaces: Namespaces, now: datetime) -> Iterator[Check]:
    found = {(each.namespace, each.secret): each for each in view.certificates}
    for identity in IDENTITIES:
        place = (namespaces.of(identity), tls_secret(identity))
        if place not in found:
            yield Check(f"certificate {place[1]}", FAIL, f"there is no secret {place[1]} in {place[0]}", _ISSUE)
    for each in found.values():
        yield _certificate(each, view, now)


_ISSUE = "Run `toolmesh deploy init-certs`; with cert-manager look at its Certificate."
_RESTART = "Run `kubectl -n toolmesh rollout restart deployment/envoy` before the former certificate ends."
_RENEW = f"Run `toolmesh deploy init-certs`; services read it by themselves. For Envoy: {_RESTART}"
_EDGE = tls_secret(EDGE)


def _certificate(each: Certificate, view: ClusterView, now: datetime) -> Check:
    name = f"certificate {each.secret}"
    try:
        parsed = x509.load_pem_x509_certificate(each.content)
    except ValueError:
        return Check(name, FAIL, f"the secret {each.secret} in {each.namespace} holds no certificate", _ISSUE)
    left = parsed.not_valid_after_utc - now
    if left <= timedelta(0):
        return Check(name, FAIL, f"ended {-left.days} days ago", _RENEW)
    if left < _SOON:
        return Check(name, WARN, f"ends in {left.days} days", _RENEW)
    late = [pod.name for pod in view.pods if _uses_former(pod, each, parsed.not_valid_before_utc)]
    if late:
        detail = f"{left.days} days left, but these pods are older than it: {', '.join(sorted(late))}"
        return Check(name, WARN, detail, _RESTART)
    return Check(name, OK, f"{left.days} days left")


def _uses_former(pod: Pod, certificate: Certificate, issued: datetime) -> bool:
    """Return whether a pod still uses what a certificate replaced. Services read theirs again, Envoy at its start."""
    mounts = pod.namespace == certificate.namespace and certificate.secret in pod.certificates
    return mounts and _EDGE in pod.certificates and pod.started is not None and pod.started < issued


def _job(job: Job) -> Check:
    name = f"job {job.name}"
    if job.complete:
        return Check(name, OK, "done")
    logs = f"Read `kubectl -n {job.namespace} logs job/{job.name}`."
    if job.failed:
        return Check(name, FAIL, f"not done; {job.failed} of its pods failed", logs)
    return Check(name, WARN, "not done yet", f"Wait for it; pods that need it wait too. {logs}")


def _part(part: str, workload: Workload | None) -> Check:
    if workload is None:
        return Check(part, FAIL, "not deployed", f"Run `kubectl apply -k deploy/k8s/{part}`, or apply your overlay.")
    return _workload(part, workload)


def _workload(name: str, workload: Workload) -> Check:
    detail = f"{workload.ready} of {workload.wanted} ready"
    look = f"Look at `kubectl -n {workload.namespace} get pods` and at the checks of its pods here."
    if workload.wanted and not workload.ready:
        return Check(name, FAIL, detail, look)
    if workload.ready < workload.wanted:
        return Check(name, WARN, detail, look)
    if workload.updated < workload.wanted:
        return Check(name, WARN, f"{detail}, {workload.updated} of the newest revision", f"An update goes on. {look}")
    return Check(name, OK, detail)


def _pod(pod: Pod) -> Check:
    logs = f"Read `kubectl -n {pod.namespace} describe pod {pod.name}` and its logs (`logs --previous`)."
    if pod.waiting:
        return Check(f"pod {pod.name}", FAIL, pod.waiting, logs)
    return Check(f"pod {pod.name}", WARN, f"its containers started {pod.restarts} times again", logs)


def _scaler(scaler: Scaler) -> Check:
    name, detail = f"autoscaler {scaler.name}", f"{scaler.current} of at most {scaler.most} replicas"
    if scaler.problem:
        advice = "Install metrics-server, or look at `kubectl describe hpa`: the number of replicas stays as it is."
        return Check(name, WARN, f"{detail}, cannot scale: {scaler.problem}", advice)
    if scaler.current >= scaler.most:
        return Check(name, WARN, detail, "Raise `maxReplicas`, or find out what uses the processors.")
    return Check(name, OK, detail)
