"""Limits and evaluations through the real stack: what is spent is counted, and permitted callers are answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc
from toolmesh.authz.v1 import capability_token_pb2 as tokens
from toolmesh.authz.v1 import policy_service_pb2 as policies_pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as policies_rpc

from tests.harness.mesh import ALICE, Mesh

BOB = "did:web:toolmesh.local:users:bob"
CAROL = "did:web:toolmesh.local:users:carol"
LIMITS = {"limits": [{"id": "carol-calls", "callers": [CAROL], "per": ["caller"], "window_seconds": 3600, "calls": 5}]}


@pytest.fixture
def operator(mesh: Mesh) -> Iterator[Any]:
    """The operator's way to authz."""
    with mesh.direct_channel("authz", "operator") as channel:
        yield channel


def minted(channel: Any, subject: str, **changes: Any) -> str:
    asked = {"tools": [tokens.ToolGrant(tool="*")], "scopes": ["tools:call", "tools:read"], **changes}
    return str(rpc.AuthzServiceStub(channel).IssueToken(pb.IssueTokenRequest(subject=subject, **asked)).token)


def echoed(mesh: Mesh, token: str, text: str = "hello") -> dict[str, Any]:
    found: dict[str, Any] = mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": text}}, token=token).json()
    return found


def test_a_token_spends_its_budget_and_no_more(mesh: Mesh, operator: Any) -> None:
    token = minted(operator, BOB, budget=tokens.Budget(calls=3))
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: echoed(mesh, token), range(12))]
    assert sum("result" in answer for answer in answers) == 3
    refused = [answer["error"]["data"] for answer in answers if "error" in answer]
    assert {(data["code"], data["retryable"]) for data in refused} == {("E3216", False)}


def test_a_token_is_held_to_its_arguments_also_when_the_decision_is_remembered(mesh: Mesh, operator: Any) -> None:
    schema = json.dumps({"properties": {"text": {"maxLength": 5}}}).encode()
    token = minted(operator, BOB, argument_constraints=[tokens.ArgumentConstraint(tool="echo", schema=schema)])
    codes = [
        echoed(mesh, token, text).get("error", {}).get("data", {}).get("code") for text in ("short", "longer", "x")
    ]
    assert codes == [None, "E3213", None]


def test_a_rule_of_the_active_set_is_counted_and_says_when_to_come_again(mesh: Mesh, operator: Any) -> None:
    stub = policies_rpc.PolicyServiceStub(operator)
    document = policies_pb.PolicyDocument(name="limits.json", text=json.dumps(LIMITS))
    made = stub.PutPolicy(policies_pb.PutPolicyRequest(documents=[document])).policy_set
    stub.ActivatePolicySet(policies_pb.ActivatePolicySetRequest(name=made.name))
    try:
        token = minted(operator, CAROL)
        answers = [echoed(mesh, token) for _ in range(7)]
        assert ["result" in answer for answer in answers] == [True] * 5 + [False] * 2
        data = answers[-1]["error"]["data"]
        assert (data["code"], data["metadata"]["limit"]) == ("E3003", "carol-calls")
        assert 3500_000 < data["retry_after_ms"] <= 3600_000
        assert "result" in echoed(mesh, minted(operator, BOB))
    finally:
        stub.RollbackPolicySet(policies_pb.RollbackPolicySetRequest())


def test_an_evaluation_through_the_edge(mesh: Mesh, operator: Any) -> None:
    found = httpx.get(f"{mesh.url}/.well-known/authzen-configuration", timeout=10).json()
    assert found["access_evaluation_endpoint"] == f"{mesh.url}/access/v1/evaluation"
    body = {
        "subject": {"type": "user", "id": ALICE},
        "action": {"name": "invoke"},
        "resource": {"type": "tool", "id": "core.echo@^1"},
    }

    def ask(token: str, subject: str) -> httpx.Response:
        asked = {**body, "subject": {"type": "user", "id": subject}}
        headers = {"authorization": f"Bearer {token}", "x-request-id": "mine"}
        return httpx.post(found["access_evaluation_endpoint"], json=asked, headers=headers, timeout=10)

    own = ask(minted(operator, ALICE), ALICE)
    assert (own.status_code, own.json()["decision"], own.headers["x-request-id"]) == (200, True, "mine")
    narrow = minted(operator, ALICE, tools=[tokens.ToolGrant(tool="arithmetic")])
    assert ask(narrow, ALICE).json()["context"]["reason"] == "TOOL_NOT_IN_TOKEN"
    assert ask(minted(operator, ALICE), BOB).status_code == 403
    asker = minted(operator, ALICE, scopes=["tools:read", "authz:evaluate"])
    assert ask(asker, BOB).json()["decision"] is True
    assert httpx.post(found["access_evaluation_endpoint"], json=body, timeout=10).status_code == 401
