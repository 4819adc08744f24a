"""The methods of JSON-RPC, each with its peer behind it."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from services.gateway.policy import POLICY
from services.gateway.tests.peers import HUGE
from services.gateway.tests.rpc_answers import error_of

# One gateway serves the whole module; each test sees only what it did itself.
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_tools_are_listed_with_their_schemas(mesh: Any) -> None:
    params = {"page_size": 10.0, "page_token": "t", "namespace": "core", "tags": ["a"]}
    result = orjson.loads((await mesh.client().call("tools.list", params)).content)["result"]
    assert result["next_page_token"] == "more"
    echo, gone = result["tools"]
    assert echo["tool"]["name"] == "tools/core.echo"
    assert echo["version"]["input_schema"]["properties"]["n"]["maximum"] == HUGE
    assert echo["version"]["output_schema"] == {"type": "object"}
    assert echo["version"]["state"] == "available"
    assert gone["version"] is None
    request = mesh.peers.registry.seen[0]
    assert (request.page_size, request.page_token, request.namespace, list(request.tags)) == (10, "t", "core", ["a"])


async def test_one_tool_is_read_with_its_versions(mesh: Any) -> None:
    result = (await mesh.client().call("tools.get", {"tool": "echo"})).json()["result"]
    assert result["tool"]["name"] == "tools/core.echo"
    assert [v["input_schema"]["type"] for v in result["versions"]] == ["object"]
    missing = await mesh.client().call("tools.get", {"tool": "none"})
    assert error_of(missing)["data"]["metadata"] == {"tool": "none"}


async def test_a_reference_is_resolved(mesh: Any) -> None:
    result = (await mesh.client().call("tools.resolve", {"tool": "echo", "version": "^1"})).json()["result"]
    assert (result["digest"], result["input_schema"]["type"]) == ("sha256:00", "object")
    assert result["manifest"]["execution"]["checkpoint"]["micro_interval_ms"] == 30_000
    assert mesh.peers.registry.seen[0].version_constraint == "^1"


async def test_a_group_is_answered_call_by_call(mesh: Any) -> None:
    calls = [{"tool": "echo", "arguments": {"n": 1}}, {"tool": "fail"}]
    outcomes = (await mesh.client().call("tools.invoke_group", {"calls": calls})).json()["result"]["outcomes"]
    assert outcomes[0]["result"]["structured_content"] == {"n": 1}
    assert outcomes[0]["error"] is None
    assert outcomes[1]["result"] is None
    assert (outcomes[1]["error"]["code"], outcomes[1]["error"]["reason"]) == ("E3401", "EXECUTION_FAILED")


async def test_a_group_beyond_what_a_hop_carries_is_refused_here(mesh: Any) -> None:
    # Four bytes as they are sent, and eighteen as they are written out.
    call = b'{"tool":"echo","arguments":{"n":[' + b",".join([b"1e15"] * 100_000) + b"]}}"
    calls = b",".join([call] * 3)
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke_group","params":{"calls":[' + calls + b"]}}"
    response = await mesh.client().post(body)
    assert (response.status_code, error_of(response)["data"]["reason"]) == (200, "PAYLOAD_TOO_LARGE")


async def test_a_preview_says_what_would_change(mesh: Any) -> None:
    found = (await mesh.client().call("tools.preview", {"tool": "echo", "arguments": {"n": 1}})).json()["result"]
    assert found["changes"] == [
        {"resource": "file:a", "operation": "create", "source": "reported", "digest_before": "", "digest_after": ""}
    ]
    assert found["predicted_result"] == {"n": 1}
    assert found["preview_token"] == "t"


async def test_a_stored_result_is_read_in_one_piece(mesh: Any) -> None:
    asked = {"ref": f"results/{'0' * 36}", "access_token": "t", "offset": 2, "max_bytes": 5}
    found = (await mesh.client().call("results.fetch", asked)).json()["result"]
    assert base64.b64decode(found["content"]) == b"cdefg"
    assert (found["offset"], found["size_bytes"]) == (2, 26)


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 1e300])
async def test_a_place_that_no_result_has_is_a_wrong_parameter(mesh: Any, offset: float) -> None:
    asked = {"ref": f"results/{'0' * 36}", "access_token": "t", "offset": offset}
    error = (await mesh.client().call("results.fetch", asked)).json()["error"]
    assert error["data"]["reason"] == "INVALID_PARAMS"
    assert [violation["path"] for violation in error["data"]["violations"]] == ["/offset"]


async def test_the_description_names_every_method_and_its_parameters(mesh: Any) -> None:
    document = (await mesh.client(token="").call("rpc.discover")).json()["result"]
    methods = {m["name"]: m for m in document["methods"]}
    assert set(methods) == set(POLICY)
    assert [p["name"] for p in methods["tools.resolve"]["params"]] == ["tool", "version"]
