"""`toolmesh mcp`: the configuration of hosts, and the bridge between standard input and HTTP."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from toolmesh_sdk import ProofKey
from toolmesh_sdk._wire.mcp_bridge import McpBridge

from libs.common.auth.dpop import Target, check_proof, new_proof_cache
from libs.common.auth.origins import origin_of

URL = ("--url", "https://mesh.example", "--token", "a-secret")


@pytest.mark.parametrize("host", ["claude", "vscode", "cursor", "generic"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_configuration_names_the_mesh_and_no_secret(toolmesh: Any, host: str, transport: str) -> None:
    ran = toolmesh("mcp", "config", host, "--transport", transport, "--view", "sales", *URL)
    assert ran.exit_code == 0
    assert "a-secret" not in ran.stdout
    document = json.loads(ran.stdout)
    server = document["servers" if host == "vscode" else "mcpServers"]["toolmesh"]
    if transport == "http":
        assert server["url"] == "https://mesh.example/mcp/sales"
        assert server["headers"]["Authorization"].startswith("Bearer ${")
    else:
        assert server["args"] == ["mcp", "stdio", "--view", "sales", "--url", "https://mesh.example"]


def test_what_cannot_be_an_endpoint_is_refused(toolmesh: Any) -> None:
    assert toolmesh("mcp", "config", "claude", "--url", "mesh.example:443", "--token", "t").exit_code == 2
    assert toolmesh("mcp", "config", "claude", "--view", "../x", *URL).exit_code == 2


class Gateway(BaseHTTPRequestHandler):
    """Answers each message with what it got: a session for `initialize`, a stream for `stream`, else the headers."""

    protocol_version = "HTTP/1.1"
    ended = threading.Event()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message.get("method")
        if method == "initialize":
            result: Any = {"protocolVersion": "2025-11-25"}
            self._answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), session="s-1")
        elif method == "stream":
            events = [{"jsonrpc": "2.0", "method": "n"}, {"jsonrpc": "2.0", "id": message["id"], "result": {}}]
            self._answer("".join(f"data: {json.dumps(event)}\n\n" for event in events), kind="text/event-stream")
        elif "id" not in message:
            self._answer("", status=202)
        else:
            told = {name.lower(): value for name, value in self.headers.items()}
            self._answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": told}))

    def do_GET(self) -> None:
        self._answer("", status=405)

    def do_DELETE(self) -> None:
        assert self.headers["mcp-session-id"] == "s-1"
        self.ended.set()
        self._answer("", status=204)

    def _answer(self, body: str, status: int = 200, kind: str = "application/json", session: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        if session:
            self.send_header("mcp-session-id", session)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def gateway() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    server.server_close()


def bridged(url: str, *lines: Any, proof_key: ProofKey | None = None) -> dict[Any, Any]:
    output = io.StringIO()
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    McpBridge(url, lambda: "token", None, output, proof_key).run(text)
    return {answer.get("id"): answer for answer in map(json.loads, output.getvalue().splitlines())}


def message(request_id: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def test_the_bridge_keeps_a_session_and_ends_it(gateway: str) -> None:
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answers = bridged(gateway, message(0, "initialize"), initialized, message("x", "tools/list"), message(2, "stream"))
    sent = answers["x"]["result"]
    assert (sent["authorization"], sent["mcp-session-id"]) == ("Bearer token", "s-1")
    assert sent["mcp-protocol-version"] == "2025-11-25"
    assert answers[2]["result"] == {}
    assert answers[None] == {"jsonrpc": "2.0", "method": "n"}
    assert Gateway.ended.wait(10)


def test_a_stateless_message_gets_the_headers_that_repeat_it(gateway: str) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    answers = bridged(
        gateway,
        message(1, "tools/call", {"name": "core__echo", "_meta": meta}),
        message(2, "tools/call", {"name": "größe", "_meta": meta}),
    )
    first = answers[1]["result"]
    assert (first["mcp-method"], first["mcp-name"]) == ("tools/call", "core__echo")
    assert (first["mcp-protocol-version"], "mcp-session-id" in first) == ("2026-07-28", False)
    assert answers[2]["result"]["mcp-name"] == "=?base64?Z3LDtsOfZQ==?="


def test_every_request_of_a_bound_token_has_a_proof_of_its_own(gateway: str) -> None:
    key, used = ProofKey(), new_proof_cache()
    answers = bridged(gateway, message(1, "tools/list"), message(2, "tools/list"), proof_key=key)
    target = Target("POST", "/mcp", (origin_of(gateway),))
    for answer in (answers[1]["result"], answers[2]["result"]):
        assert answer["authorization"] == "DPoP token"
        bound = {"token": "token", "subject": "", "thumbprint": key.thumbprint}
        check_proof(answer["dpop"], **bound, target=target, now=time.time(), used=used)


def test_bad_lines_and_a_missing_mesh_are_answered() -> None:
    assert bridged("http://127.0.0.1:1/mcp", "{", "[]")[None]["error"]["code"] == -32600
    assert bridged("http://127.0.0.1:1/mcp", message(1, "ping"))[1]["error"]["code"] == -32000
