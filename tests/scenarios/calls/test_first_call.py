"""One call goes all the way, over each of the three ways in, and leaves evidence under one trace id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libs.common.ids import new_span_id, new_trace_id
from tests.harness.mesh import Mesh, cli, invoke


@pytest.fixture(scope="module")
def token(mesh: Mesh) -> str:
    return mesh.token()


def traced() -> tuple[str, str]:
    trace = new_trace_id()
    return trace, f"00-{trace}-{new_span_id()}-01"


def records(mesh: Mesh, trace: str) -> list[dict[str, Any]]:
    done = cli("audit", "tail", "--trace", trace, "--json", state=mesh.state)
    return json.loads(done.stdout)["records"]  # type: ignore[no-any-return]


def assert_recorded(mesh: Mesh, trace: str) -> None:
    """The decision came first, then the outcome that follows it, both with the digest of the arguments."""
    found = sorted(records(mesh, trace), key=lambda r: int(r["sequence"]))
    classes = [r["record"]["event_class"] for r in found]
    assert classes == ["permission_decided", "invocation_succeeded"]
    decision, outcome = (r["record"] for r in found)
    assert outcome["follows"] == decision["record_id"]
    assert decision["arguments_digest"] == outcome["arguments_digest"]


def test_json_rpc_through_the_edge(mesh: Mesh, token: str) -> None:
    trace, parent = traced()
    answer = mesh.rpc(
        "tools.invoke", {"tool": "echo", "arguments": {"text": "hello"}}, token=token, headers={"traceparent": parent}
    )
    assert answer.status_code == 200
    result = answer.json()["result"]
    assert result["structured_content"] == {"text": "hello"}
    assert result["trace_id"] == trace
    assert_recorded(mesh, trace)


def test_grpc_through_the_edge_and_straight_to_the_executor_with_the_same_token(mesh: Mesh, token: str) -> None:
    for way in (mesh.edge_channel(), mesh.direct_channel("executor")):
        trace, parent = traced()
        with way as channel:
            response = invoke(
                channel, "arithmetic", b'{"expression": "2 ** 10 + 1"}', token=token, metadata=[("traceparent", parent)]
            )
        assert json.loads(response.result.structured_content)["result"] == 1025
        assert response.result.trace_id == trace
        assert_recorded(mesh, trace)


def test_one_trace_id_runs_through_every_hop(mesh: Mesh, token: str) -> None:
    trace, parent = traced()
    mesh.rpc("tools.invoke", {"tool": "clock_now"}, token=mesh.token(), headers={"traceparent": parent})
    for part in ("gateway", "executor", "authz"):
        assert mesh.calls(part, trace) != [], part
    assert_recorded(mesh, trace)


def test_sixty_four_bit_integers_survive_both_ways(mesh: Mesh, token: str) -> None:
    for number in (2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63)):
        answer = mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "n", "value": number}}, token=token)
        assert answer.json()["result"]["structured_content"]["value"] == number


def test_the_same_key_answers_the_first_result_and_other_arguments_conflict(mesh: Mesh, token: str) -> None:
    call = {"tool": "clock_now", "idempotency_key": f"k-{new_trace_id()}"}
    first, again = (mesh.rpc("tools.invoke", call, token=token).json()["result"] for _ in range(2))
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["structured_content"] == again["structured_content"]
    other = {**call, "arguments": {"timezone": "Europe/Berlin"}}
    assert mesh.rpc("tools.invoke", other, token=token).json()["error"]["data"]["code"] == "E3408"


def test_the_command_line_makes_the_call_too(mesh: Mesh) -> None:
    done = cli("call", "echo", '{"text": "grüße 🌍"}', "--json", state=mesh.state)
    assert json.loads(done.stdout)["content"] == {"text": "grüße 🌍"}
    listed = json.loads(cli("tools", "list", "--json", state=mesh.state).stdout)
    assert {"core.arithmetic", "core.clock_now", "core.echo"} <= {
        entry["tool"]["name"].removeprefix("tools/") for entry in listed["tools"]
    }


def test_a_call_that_policy_or_contract_refuses_is_recorded_as_well(mesh: Mesh) -> None:
    narrow = mesh.token(tools="arith*")
    for params, code in (
        ({"tool": "echo", "arguments": {"text": "x"}}, "E3204"),
        ({"tool": "arithmetic", "arguments": {"expression": 5}}, "E3301"),
        ({"tool": "arithmetic_unknown"}, "E3101"),
    ):
        trace, parent = traced()
        answer = mesh.rpc("tools.invoke", params, token=narrow, headers={"traceparent": parent})
        error = answer.json()["error"]["data"]
        assert error["code"] == code
        recorded = [r["record"] for r in records(mesh, trace)]
        assert [r["invocation_id"] for r in recorded] == [error["invocation_id"]]
        assert recorded[0]["status"] == "error"
