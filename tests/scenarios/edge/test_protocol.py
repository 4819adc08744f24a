"""What is malformed at /rpc gets the errors of the JSON-RPC 2.0 specification, and nothing crashes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.harness.mesh import Mesh


@pytest.fixture(scope="module")
def token(mesh: Mesh) -> str:
    return mesh.token()


@pytest.fixture(scope="module", autouse=True)
def processes(mesh: Mesh) -> dict[str, Any]:
    """The processes that ran before the first malformed request."""
    return _processes(mesh)


def _processes(mesh: Mesh) -> dict[str, Any]:
    return {part["name"]: (part["pid"], part["ready"]) for part in mesh.status()["services"]}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe\x00", -32700),
        (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools.list"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.list","params":{"page_size":NaN}}', -32700),
        (b"[]", -32600),
        (b"1", -32600),
        (b'"x"', -32600),
        (b"null", -32600),
        (b'{"id":1,"method":"tools.list"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"tools.list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":{"a":1},"method":"tools.list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"no.such"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":""}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":["echo"]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":{"tool":5}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":{"tool":"echo","arguments":[1]}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":{"tool":"echo","surprise":1}}', -32602),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":{"tool":"echo","arguments":{"text":"x","undeclared":1}}}',
            -32602,
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":{"tool":"Echo; DROP TABLE tools"}}', -32004),
    ],
)
def test_malformed_requests(mesh: Mesh, token: str, body: bytes, code: int) -> None:
    answer = mesh.post(body, token=token).json()
    assert answer["jsonrpc"] == "2.0"
    assert answer["error"]["code"] == code
    assert "result" not in answer


def test_deeply_nested_and_oversized_bodies(mesh: Mesh, token: str) -> None:
    for depth in (70, 500, 1500, 100_000):
        deep = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":{"tool":"echo","arguments":{"text":"x","value":'
            + b"[" * depth
            + b"]" * depth
            + b"}}}"
        )
        answer = mesh.post(deep, token=token)
        assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (413, "E3010")
    huge = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools.invoke",
            "params": {"tool": "echo", "arguments": {"text": "x" * 5_000_000}},
        }
    )
    answer = mesh.post(huge.encode(), token=token)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == -32600


def test_batches_and_notifications(mesh: Mesh, token: str) -> None:
    def entry(number: Any, **changes: Any) -> dict[str, Any]:
        return {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools.invoke",
            "params": {"tool": "echo", "arguments": {"text": str(number)}},
            **changes,
        }

    batch = [
        entry(3),
        entry("two"),
        {"jsonrpc": "2.0", "method": "tools.invoke", "params": {"tool": "echo"}},
        17,
        entry(1, method="no.such"),
    ]
    answers = mesh.post(json.dumps(batch).encode(), token=token).json()
    assert {answer["id"] for answer in answers} == {3, "two", None, 1}
    assert sorted(answer.get("error", {}).get("code", 0) for answer in answers) == [-32601, -32600, 0, 0]
    silent = mesh.post(json.dumps([{"jsonrpc": "2.0", "method": "tools.list"}]).encode(), token=token)
    assert (silent.status_code, silent.content) == (204, b"")


def test_other_paths_and_methods(mesh: Mesh, token: str) -> None:
    headers = {"authorization": f"Bearer {token}"}
    assert httpx.get(f"{mesh.url}/rpc", headers=headers).status_code in (404, 405)
    assert httpx.get(f"{mesh.url}/healthz").status_code == 200
    assert httpx.get(f"{mesh.url}/.well-known/jwks.json").json()["keys"] != []
    assert httpx.get(f"{mesh.url}/nowhere", headers=headers).status_code == 404
    wrong_type = mesh.post(b"<xml/>", token=token, headers={"content-type": "text/xml"})
    assert wrong_type.status_code == 415


def test_identity_headers_of_outsiders_mean_nothing(mesh: Mesh) -> None:
    forged = {"x-jwt-sub": "did:web:admin", "x-forwarded-client-cert": "URI=spiffe://toolmesh.local/operator"}
    assert mesh.rpc("tools.list", {}, headers=forged).status_code == 401


def test_a_job_is_started_awaited_and_listed_over_json_rpc(mesh: Mesh, token: str) -> None:
    def result(method: str, params: dict[str, object]) -> dict[str, Any]:
        answer = mesh.rpc(method, params, token=token).json()
        assert "error" not in answer, answer
        return answer["result"]

    started = result("invocations.start", {"tool": "echo", "arguments": {"text": "later"}, "max_duration_ms": 60_000})
    name = started["invocation"]["name"]
    ended = result("invocations.wait", {"name": name, "timeout_ms": 25_000})["invocation"]
    assert ended["state"] == "succeeded"
    assert ended["result"]["structured_content"] == {"text": "later"}
    assert name in [job["name"] for job in result("invocations.list", {"states": ["succeeded"]})["invocations"]]
    assert result("invocations.cancel", {"name": name})["invocation"]["state"] == "succeeded"

    other = mesh.token(sub="did:web:example.com:stranger")
    refused = mesh.rpc("invocations.get", {"name": name}, token=other).json()
    assert refused["error"]["data"]["code"] == "E3702"


def test_no_process_has_ended(mesh: Mesh, processes: dict[str, Any]) -> None:
    assert _processes(mesh) == processes
