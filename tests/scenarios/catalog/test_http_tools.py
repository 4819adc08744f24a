"""An HTTP service as a governed tool: registered, called with a secret, the secret rotated, and no trace of it left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from localmesh.wheels import postgres_programs
from tests.harness.evidence.planted import files_below, found_in, process_list
from tests.harness.mesh import Mesh, cli
from tests.harness.stores import free_port, wait_until

FIRST, SECOND = "f1rst-s3cret-value-0198c", "s3cond-s3cret-value-0198d"
SCOPES = "tools:call,tools:read,audit:read"


class Orders(BaseHTTPRequestHandler):
    """A service of orders that repeats the credential it was sent, as careless services do."""

    seen: list[tuple[str, str, str]] = []
    status = 200

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["content-length"])))

    def _answer(self, body: bytes) -> None:
        authorization = self.headers.get("authorization", "")
        self.seen.append((self.command, self.path, authorization))
        answer = {
            "path": self.path,
            "body": body.decode(),
            "you": authorization,
            "lang": self.headers.get("x-lang", ""),
        }
        content = json.dumps(answer).encode()
        self.send_response(self.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def orders() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Orders)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def mesh(mesh_of_two_executors: Mesh) -> Mesh:
    return mesh_of_two_executors


def manifest(port: int) -> dict[str, Any]:
    strings = {name: {"type": "string"} for name in ("id", "lang")}
    return {
        "schema_version": "0.2.0",
        "tool_id": "find_order",
        "namespace": "shop",
        "version": "1.0.0",
        "title": "Find an order",
        "description": "Finds an order of the shop by its id.",
        "provider": "shop",
        "kind": "custom",
        "protocol": "custom",
        "input": {
            "schema": {
                "type": "object",
                "properties": {**strings, "tags": {"type": "array", "items": {"type": "string"}}},
                "required": ["id"],
            }
        },
        "output": {
            "schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path", "lang"]}
        },
        "execution": {
            "runner": "http",
            "timeout_class": "standard",
            "access_tier": "network",
            "network_policy": {"allowed_domains": ["127.0.0.1"], "allowed_ports": [port]},
            "http": {
                "method": "get",
                "url": f"http://127.0.0.1:{port}/orders/{{id}}",
                "parameters": [
                    {"argument": "tags", "place": "query", "name": "tag"},
                    {"argument": "lang", "place": "header", "name": "X-Lang"},
                ],
                "secrets": [
                    {"secret": "secret://shop_key", "place": "header", "name": "Authorization", "prefix": "Bearer "}
                ],
            },
            "retry_policy": {"max_attempts": 2},
        },
        "permission": {"required_scopes": ["tools:call"]},
        "mutation_class": "read_only",
        "observability": {"audit_detail": "summary"},
    }


def call(mesh: Mesh, token: str, **arguments: Any) -> dict[str, Any]:
    done = cli(
        "call", "shop.find_order", json.dumps(arguments), "--json", state=mesh.state, TOOLMESH_TOKEN=token, check=False
    )
    return json.loads(done.stdout or done.stderr)  # type: ignore[no-any-return]


def test_a_service_is_called_with_its_secret_and_the_rotated_one_next(
    mesh: Mesh, orders: ThreadingHTTPServer, tmp_path: Path
) -> None:
    file = tmp_path / "find_order.json"
    file.write_text(json.dumps(manifest(orders.server_port)))
    cli("tools", "register", str(file), state=mesh.state)
    token = mesh.token(scopes=SCOPES)
    wait_until(
        lambda: "CREDENTIAL_NOT_FOUND" in json.dumps(call(mesh, token, id="1")), "a tool without its secret", 120
    )
    assert Orders.seen == []

    mesh.store_secret(FIRST, "set", "shop_key", "--host", "127.0.0.1", "--namespace", "shop")
    answer = json.dumps(call(mesh, token, id="a/b", tags=["x", "y"], lang="de"))
    assert Orders.seen[-1] == ("GET", "/orders/a%2Fb?tag=x&tag=y", f"Bearer {FIRST}")
    assert "/orders/a%2Fb?tag=x&tag=y" in answer
    mesh.store_secret(SECOND, "rotate", "shop_key")
    answer += json.dumps(call(mesh, token, id="2"))
    assert Orders.seen[-1][2] == f"Bearer {SECOND}"

    assert found_in(answer.encode(), {"first": FIRST, "second": SECOND}) == set()
    assert found_in(everything_stored(mesh), {"first": FIRST, "second": SECOND, "visible": "find_order"}) == {"visible"}


def test_executors_leave_a_failing_service_alone_together_and_come_back(
    mesh: Mesh, orders: ThreadingHTTPServer, tmp_path: Path
) -> None:
    document = manifest(orders.server_port)
    document["tool_id"] = "flaky_order"
    del document["execution"]["http"]["secrets"], document["execution"]["retry_policy"]
    document["execution"]["circuit_breaker"] = {"failure_threshold": 4, "success_threshold": 1, "open_time": "3s"}
    file = tmp_path / "flaky_order.json"
    file.write_text(json.dumps(document))
    cli("tools", "register", str(file), state=mesh.state)
    token = mesh.token(scopes=SCOPES)

    def reason() -> str:
        answer = mesh.rpc("tools.invoke", {"tool": "shop.flaky_order", "arguments": {"id": "1"}}, token=token).json()
        return str(answer.get("error", {}).get("data", {}).get("reason", "none"))

    executors = [part["ops"] for part in mesh.status()["services"] if part["name"].startswith("executor")]
    assert len(executors) == 2
    wait_until(lambda: reason() == "none", "a tool that answers", 120)
    before = len(Orders.seen)
    Orders.status = 500
    try:
        wait_until(lambda: reason() == "CIRCUIT_OPEN", "an open circuit", 120)
        wait_until(lambda: reason() and all(map(refusals, executors)), "refusals by both executors", 120)
    finally:
        Orders.status = 200
    assert len(Orders.seen) - before >= 4
    wait_until(lambda: reason() == "none", "a closed circuit", 120)
    assert set(circuit_states(mesh)) == {"open", "half_open", "closed"}


def test_another_origin_and_then_an_older_result_stand_in_for_a_service(
    mesh: Mesh, orders: ThreadingHTTPServer, tmp_path: Path
) -> None:
    document = manifest(orders.server_port)
    document["tool_id"] = "steady_order"
    execution = document["execution"]
    del execution["http"]["secrets"], execution["retry_policy"]
    closed = free_port()
    execution["http"] |= {
        "url": f"http://127.0.0.1:{closed}/orders/{{id}}",
        "failover_origins": [f"http://127.0.0.1:{orders.server_port}"],
    }
    execution["network_policy"]["allowed_ports"] = [closed, orders.server_port]
    execution |= {"cache_ttl": "0.001s", "stale_ttl": "3600s"}
    file = tmp_path / "steady_order.json"
    file.write_text(json.dumps(document))
    cli("tools", "register", str(file), state=mesh.state)
    token = mesh.token(scopes=SCOPES)

    def result() -> dict[str, Any]:
        body = {"tool": "shop.steady_order", "arguments": {"id": "1"}}
        return dict(mesh.rpc("tools.invoke", body, token=token).json().get("result", {}))

    wait_until(result, "an answer of the other origin", 120)
    fresh = result()
    Orders.status = 500
    try:
        # The service fails, and the result is too old for the cache. Each executor has results of its own.
        wait_until(lambda: result().get("structured_content") == fresh["structured_content"], "an older result", 120)
    finally:
        Orders.status = 200


def refusals(ops: str) -> float:
    """Return how many requests an executor has held back."""
    text = httpx.get(f"http://{ops}/metrics").text
    [line] = [line for line in text.splitlines() if line.startswith("toolmesh_circuit_refusals_total")]
    return float(line.rpartition(" ")[2])


def circuit_states(mesh: Mesh) -> list[str]:
    """Return the states of the circuits, as the log tells them."""
    states: list[str] = []

    def closed_on_record() -> bool:
        lines = cli("audit", "acts", "-n", "200", state=mesh.state, COLUMNS="400").stdout.splitlines()
        # The newest is the first.
        states[:] = [match[1] for line in reversed(lines) if (match := re.search(r"circuits/\S+ \S+ -> (\S+)", line))]
        return "closed" in states

    wait_until(closed_on_record, "a closed circuit on record", 120)
    return states


def everything_stored(mesh: Mesh) -> bytes:
    """Return what the databases, the logs and the process list hold."""
    port = mesh.part("postgres")["address"].rpartition(":")[2]
    password = (mesh.state / "secrets" / "database" / "postgres").read_text()
    dump = subprocess.run(
        [str(postgres_programs() / "pg_dump"), "-h", "127.0.0.1", "-p", port, "-U", "postgres", "toolmesh"],
        capture_output=True,
        env={**os.environ, "PGPASSWORD": password},
        check=True,
    ).stdout
    return dump + process_list() + b"".join(files_below(mesh.state / "logs").values())
