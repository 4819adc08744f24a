"""A server that answers as the API of a cluster does, and a kubeconfig that names it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

MESH, APPS = "/api/v1/namespaces/mesh", "/apis/apps/v1/namespaces/mesh"
STARTED = "2026-05-01T10:00:00Z"
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
LISTS: dict[str, list[dict[str, Any]]] = {
    f"{APPS}/deployments": [
        {
            "metadata": {"name": "authz", "namespace": "mesh"},
            "spec": {"replicas": 2, "selector": {}, "template": {}},
            "status": {"readyReplicas": 1, "updatedReplicas": 2},
        }
    ],
    f"{APPS}/daemonsets": [
        {
            "metadata": {"name": "profiles", "namespace": "mesh"},
            "spec": {"selector": {}, "template": {}},
            "status": {
                "currentNumberScheduled": 3,
                "desiredNumberScheduled": 3,
                "numberMisscheduled": 0,
                "numberReady": 2,
                "updatedNumberScheduled": 3,
            },
        }
    ],
    f"{MESH}/pods": [
        {
            "metadata": {"name": "authz-1", "namespace": "mesh"},
            "spec": {"containers": [], "volumes": [{"name": "tls", "secret": {"secretName": "authz-tls"}}]},
            "status": {
                "initContainerStatuses": [],
                "containerStatuses": [
                    {
                        "name": "service",
                        "image": "i",
                        "imageID": "i",
                        "ready": True,
                        "restartCount": 3,
                        "state": {"running": {"startedAt": STARTED}},
                    }
                ],
            },
        },
        {
            "metadata": {"name": "audit-1", "namespace": "mesh"},
            "spec": {"containers": []},
            "status": {
                "containerStatuses": [
                    {
                        "name": "service",
                        "image": "i",
                        "imageID": "i",
                        "ready": False,
                        "restartCount": 7,
                        "state": WAITING,
                    }
                ]
            },
        },
        {
            "metadata": {"name": "new-1", "namespace": "mesh"},
            "spec": {"containers": []},
            "status": {
                "containerStatuses": [
                    {
                        "name": "service",
                        "image": "i",
                        "imageID": "",
                        "ready": False,
                        "restartCount": 0,
                        "state": {"waiting": {"reason": "ContainerCreating"}},
                    }
                ]
            },
        },
    ],
    "/apis/batch/v1/namespaces/mesh/jobs": [
        {
            "metadata": {"name": "init", "namespace": "mesh"},
            "spec": {"template": {}},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        },
        {"metadata": {"name": "late", "namespace": "mesh"}, "spec": {"template": {}}, "status": {"failed": 2}},
    ],
    "/apis/autoscaling/v2/namespaces/mesh/horizontalpodautoscalers": [
        {
            "metadata": {"name": "authz", "namespace": "mesh"},
            "spec": {"maxReplicas": 4, "scaleTargetRef": {"kind": "Deployment", "name": "authz"}},
            "status": {
                "currentReplicas": 2,
                "desiredReplicas": 2,
                "conditions": [{"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric"}],
            },
        }
    ],
    f"{MESH}/secrets": [
        {
            "metadata": {"name": "authz-tls", "namespace": "mesh"},
            "data": {"tls.crt": base64.b64encode(b"PEM").decode(), "tls.key": base64.b64encode(b"key").decode()},
        },
        {"metadata": {"name": "sealing-keys", "namespace": "mesh"}, "data": {"1.key": "a2V5"}},
    ],
}


class Api(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        content = json.dumps({"items": LISTS[path]} if self.status == 200 else {"kind": "Status"}).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


Kubeconfig = Callable[[str], None]


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubeconfig:
    """Write a kubeconfig with one context, `one`, for a server."""

    def write(server: str) -> None:
        document = {
            "current-context": "one",
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "clusters": [{"name": "one", "cluster": {"server": server}}],
            "users": [{"name": "one", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(document))
        # Read by the client when it is imported, and by it alone.
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))

    return write


@pytest.fixture
def api(kubeconfig: Kubeconfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Api]]:
    monkeypatch.setattr(Api, "status", 200)
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        kubeconfig(f"http://127.0.0.1:{server.server_port}")
        yield Api
        server.shutdown()
        thread.join()
