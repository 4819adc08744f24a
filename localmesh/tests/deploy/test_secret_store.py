"""The client of a cluster's secrets, against a server that answers as the API does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from localmesh.deploy.secret_store import TLS, KubernetesSecrets


class Api(BaseHTTPRequestHandler):
    secrets: dict[str, Any] = {}

    def do_GET(self) -> None:
        self._answer(200 if self.path in self.secrets else 404, self.secrets.get(self.path, {"kind": "Status"}))

    def do_POST(self) -> None:
        secret = self._body()
        path = f"{self.path}/{secret['metadata']['name']}"
        if path in self.secrets:
            self._answer(409, {"kind": "Status"})
        else:
            self.secrets[path] = secret
            self._answer(201, secret)

    def do_PUT(self) -> None:
        self.secrets[self.path] = self._body()
        self._answer(200, self.secrets[self.path])

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesSecrets]:
    Api.secrets = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
    kubeconfig = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "one", "user": {"token": "token"}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield KubernetesSecrets()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_secret_is_created_once_and_replaced_on_demand(store: KubernetesSecrets) -> None:
    assert store.read("toolmesh", "one") is None
    store.create("toolmesh", "one", {"url": b"first"})
    store.create("toolmesh", "one", {"url": b"second"})
    assert store.read("toolmesh", "one") == {"url": b"first"}
    store.replace("toolmesh", "one", {"url": b"third"})
    assert store.read("toolmesh", "one") == {"url": b"third"}
    assert store.read("other", "one") is None


def test_a_certificate_is_replaced_where_there_was_none(store: KubernetesSecrets) -> None:
    store.replace("toolmesh", "one-tls", {"tls.crt": b"\x00\xff"}, TLS)
    assert store.read("toolmesh", "one-tls") == {"tls.crt": b"\x00\xff"}
    assert Api.secrets["/api/v1/namespaces/toolmesh/secrets/one-tls"]["type"] == TLS
