"""A server that answers as the API of a cluster does: deployments that roll out, and metrics of their pods."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import kubernetes
import pytest

PARTS = ("audit", "authz", "registry", "approval", "executor", "gateway", "envoy")
INVOKE = "/toolmesh.executor.v1.ExecutorService/Invoke"
# What calls do between two readings of the metrics.
CALLS_A_READING = 100


def namespace_of(part: str) -> str:
    return "toolmesh-executor" if part == "executor" else "toolmesh"


def template(image: str) -> dict[str, Any]:
    waiting = {"name": "wait", "image": image}
    return {"metadata": {"labels": {"version": image}}, "spec": {"initContainers": [waiting], "containers": [
        {"name": "service", "image": image}, {"name": "beside", "image": "other:1"}]}}  # fmt: skip


@dataclass
class FakeCluster:
    """The state behind the API."""

    deployments: dict[str, dict[str, Any]] = field(default_factory=dict)
    unready: set[str] = field(default_factory=set)
    """Images whose pods never become ready."""
    failing: set[str] = field(default_factory=set)
    """Images whose pods fail every second call of the executor."""
    history: list[tuple[str, str]] = field(default_factory=list)
    """The parts whose pods were replaced, and by which image."""
    unreachable: bool = False
    """Whether the API server cannot reach the pods."""
    calls: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        for part in PARTS:
            self.deployments[part] = {
                "metadata": {"name": part, "generation": 1},
                "spec": {"replicas": 1, "selector": {}, "template": template(f"{part}:1")},
                "status": {},
            }

    def image(self, part: str) -> str:
        image: str = self.deployments[part]["spec"]["template"]["spec"]["containers"][0]["image"]
        return image

    def read(self, part: str) -> dict[str, Any]:
        deployment, ready = self.deployments[part], self.image(part) not in self.unready
        counts = {"updatedReplicas": 1, "replicas": 1 if ready else 2, "availableReplicas": 1}
        return {**deployment, "status": {"observedGeneration": deployment["metadata"]["generation"], **counts}}

    def patch(self, part: str, change: Any) -> None:
        deployment = self.deployments[part]
        before = self.image(part)
        if isinstance(change, list):
            [operation] = change
            assert (operation["op"], operation["path"]) == ("replace", "/spec/template")
            deployment["spec"]["template"] = operation["value"]
        else:
            _merge(deployment["spec"], change["spec"])
        deployment["metadata"]["generation"] += 1
        if self.image(part) != before and not deployment["spec"].get("paused"):
            self.history.append((part, self.image(part)))

    def metrics(self) -> str:
        self.calls += CALLS_A_READING
        if any(self.image(part) in self.failing for part in PARTS):
            self.failures += CALLS_A_READING // 2
        good = self.calls - self.failures
        lines = [f'toolmesh_calls_total{{method="{INVOKE}",code="OK"}} {good}']
        lines += [f'toolmesh_calls_total{{method="{INVOKE}",code="INTERNAL"}} {self.failures}']
        return "\n".join(["# TYPE toolmesh_calls_total counter", *lines, ""])


class Api(BaseHTTPRequestHandler):
    cluster: FakeCluster

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        namespace, part = path.split("/namespaces/")[1].split("/")[0], path.split("/")[-1]
        if path.endswith("/proxy/metrics"):
            self._answer({"kind": "Status"}, 503) if self.cluster.unreachable else self._answer(
                self.cluster.metrics().encode()
            )
        elif path.endswith("/pods"):
            self._answer({"items": [_pod("executor")] if namespace == "toolmesh-executor" else []})
        elif part in PARTS and namespace == namespace_of(part):
            self._answer(self.cluster.read(part))
        else:
            self._answer({"kind": "Status"}, 404)

    def do_PATCH(self) -> None:
        part = self.path.split("?")[0].split("/")[-1]
        self.cluster.patch(part, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(self.cluster.read(part))

    def _answer(self, document: Any, status: int = 200) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _pod(part: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": f"{part}-1"}, "spec": {"containers": []}, "status": {"conditions": [ready]}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster behind the current context of the kubeconfig."""
    state = FakeCluster()
    monkeypatch.setattr(Api, "cluster", state, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        document = {
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "clusters": [{"name": "one", "cluster": {"server": address}}],
            "users": [{"name": "one", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(document))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        monkeypatch.setattr("localmesh.upgrade.progressive.POLL_SECONDS", 0.01)
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Any]:
    """The client of that cluster."""
    config: Any = kubernetes.config
    config.load_kube_config()
    with kubernetes.client.ApiClient() as client:
        yield client
