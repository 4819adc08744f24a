"""AuthZEN 1.0 over HTTP: the shapes of its requests and answers, and what becomes of everything else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import orjson
import pytest
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import decision_pb2 as dpb
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.common.auth.origins import parse_origins
from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from services.gateway.authzen.convert import check_request
from services.gateway.authzen.endpoint import configuration
from services.gateway.authzen.model import Evaluation
from services.gateway.tests.conftest import Client, Mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE = "did:web:toolmesh.local:users:alice"
ONE, MANY = "/access/v1/evaluation", "/access/v1/evaluations"


def an_evaluation(**changes: Any) -> dict[str, Any]:
    """May Alice call echo?"""
    return {
        "subject": {"type": "user", "id": ALICE},
        "action": {"name": "invoke"},
        "resource": {"type": "tool", "id": "core.echo"},
        **changes,
    }


async def ask(client: Client, body: Any, path: str = ONE, **headers: str) -> httpx.Response:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return await client.http.post(path, content=content, headers={"content-type": "application/json", **named})


async def test_a_question_about_the_caller_is_put_like_a_call(mesh: Mesh) -> None:
    client = mesh.client(token=mesh.signer.mint(ALICE))
    body = an_evaluation(
        resource={"type": "tool", "id": "core.echo@^1", "properties": {"anything": [1]}},
        context={"arguments": {"n": 1}, "session_id": "s1", "time": "2026-01-01T00:00:00Z"},
    )
    response = await ask(client, body, x_request_id="mine-1")
    assert (response.status_code, response.headers["x-request-id"]) == (200, "mine-1")
    assert response.json()["decision"] is True
    [resolved], [(request, call)] = mesh.peers.registry.seen, mesh.peers.authz.seen
    assert (resolved.tool, resolved.version_constraint) == ("core.echo", "^1")
    assert (request.call.tool_version, request.call.mutation_class) == ("tools/core.echo/versions/1.0.0", "read_only")
    assert (request.call.arguments, request.call.session_id) == (b'{"n":1}', "s1")
    assert request.call.arguments_digest == digest({"n": 1})
    assert (request.HasField("subject"), call.caller.subject) == (False, ALICE)


async def test_an_evaluation_of_another_subject_uses_what_is_known_of_it(mesh: Mesh) -> None:
    properties = {
        "on_behalf_of": ALICE,
        "tenant": "t1",
        "trust_level": 70,
        "groups": ["g"],
        "scopes": ["s"],
        "department": "Sales",
    }
    subject = {"type": "agent", "id": "did:web:a.example:bot", "properties": properties}
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), an_evaluation(subject=subject))
    assert response.status_code == 200
    told = mesh.peers.authz.seen[0][0].subject
    assert (told.subject, told.kind) == ("did:web:a.example:bot", pb.PRINCIPAL_KIND_AGENT)
    assert told.on_behalf_of == ALICE
    assert (told.tenant, told.trust_level, [*told.groups], [*told.scopes]) == ("t1", 70, ["g"], ["s"])


async def test_policy_gets_the_tool_attributes_that_the_executor_sends() -> None:
    version = ToolVersion(name="tools/core.echo/versions/1.0.0")
    version.trust.score = 64
    body = an_evaluation()
    evaluation = Evaluation(body["subject"], body["action"], body["resource"], {})
    call = check_request(evaluation, version, frozenset({ALICE})).call
    assert (call.tool_trust, call.arguments, call.arguments_digest) == (64, b"", "")


async def test_risk_facts_are_passed_on(mesh: Mesh) -> None:
    risk = {"score": 80, "failed_logins": 0}
    await ask(mesh.client(token=mesh.signer.mint(ALICE)), an_evaluation(context={"risk": risk}))
    assert dict(mesh.peers.authz.seen[0][0].call.risk) == risk


async def test_the_answer_says_why(mesh: Mesh) -> None:
    mesh.peers.authz.decision.obligations.add(kind=dpb.OBLIGATION_KIND_CAP_ROWS, values=["10"])
    answer = (await ask(mesh.client(token=mesh.signer.mint(ALICE)), an_evaluation())).json()
    assert answer["context"] == {
        "decision_id": "decisions/1",
        "outcome": "allow",
        "reasons": ["because"],
        "policies": ["p1"],
        "policy_set_version": "sha256:1",
        "expires_at": "1970-01-01T00:00:00Z",
        "obligations": [{"kind": "cap_rows", "values": ["10"]}],
    }


async def test_what_needs_a_person_is_no(mesh: Mesh) -> None:
    mesh.peers.authz.decision = dpb.Decision(needs_approval=dpb.NeedsApproval(approver_groups=["a", "b"], quorum=2))
    answer = (await ask(mesh.client(token=mesh.signer.mint(ALICE)), an_evaluation())).json()
    assert (answer["decision"], answer["context"]["outcome"]) == (False, "needs_approval")
    assert answer["context"]["approval"] == {"approver_groups": ["a", "b"], "quorum": 2}


@pytest.mark.parametrize(
    "decision",
    [
        dpb.Decision(),
        dpb.Decision(deny=dpb.Deny(reason=3204)),  # type: ignore[arg-type]
        dpb.Decision(allow=dpb.Allow(), mode=dpb.DECISION_MODE_SHADOW),
    ],
)
async def test_whatever_is_not_a_plain_yes_is_no(mesh: Mesh, decision: dpb.Decision) -> None:
    mesh.peers.authz.decision = decision
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), an_evaluation())
    assert (response.status_code, response.json()["decision"]) == (200, False)


@pytest.mark.parametrize(
    "changes",
    [
        # As the specification's own examples ask: a question that this mesh has no rules about.
        {"resource": {"type": "account", "id": "123"}, "action": {"name": "can_read", "properties": {"method": "GET"}}},
        {"action": {"name": "can_delete"}},
        {"resource": {"type": "tool", "id": "core.nobody"}},
    ],
)
async def test_unknown_resources_are_denied(mesh: Mesh, changes: dict[str, Any]) -> None:
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), an_evaluation(**changes))
    assert (response.status_code, response.json()["decision"]) == (200, False)
    assert response.json()["context"]["reasons"]
    assert mesh.peers.authz.seen == []


async def test_many_take_what_they_leave_out_from_the_whole(mesh: Mesh) -> None:
    body = {
        **an_evaluation(),
        "evaluations": [
            {},
            {"resource": {"type": "account", "id": "1"}},
            {"context": {"session_id": "own"}},
            {"subject": 5},
            7,
        ],
    }
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), body, MANY)
    answers = response.json()["evaluations"]
    assert [answer["decision"] for answer in answers] == [True, False, True, False, False]
    assert [answer["context"]["error"]["status"] for answer in answers[3:]] == [400, 400]
    assert sorted(request.call.session_id for request, _ in mesh.peers.authz.seen) == ["", "own"]


@pytest.mark.parametrize(
    ("semantic", "decisions"),
    [
        ("execute_all", [True, False, True, False]),
        ("deny_on_first_deny", [True, False]),
        ("permit_on_first_permit", [True]),
    ],
)
async def test_many_stop_at_their_limit(mesh: Mesh, semantic: str, decisions: list[bool]) -> None:
    no = {"action": {"name": "can_fly"}}
    body = {**an_evaluation(), "evaluations": [{}, no, {}, no], "options": {"evaluations_semantic": semantic}}
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), body, MANY)
    assert [answer["decision"] for answer in response.json()["evaluations"]] == decisions


@pytest.mark.parametrize("more", [{}, {"evaluations": []}])
async def test_many_without_any_are_one(mesh: Mesh, more: dict[str, Any]) -> None:
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), {**an_evaluation(), **more}, MANY)
    assert response.json()["decision"] is True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"subject":1,"subject":2}',
        {},
        an_evaluation(subject=[]),
        an_evaluation(subject={"type": "user"}),
        an_evaluation(subject={"type": "user", "id": 5}),
        an_evaluation(subject={"type": "user", "id": ""}),
        an_evaluation(subject={"type": "robot", "id": "did:web:x"}),
        an_evaluation(subject={"type": "user", "id": ALICE, "properties": {"trust_level": "high"}}),
        an_evaluation(subject={"type": "user", "id": ALICE, "properties": {"trust_level": True}}),
        an_evaluation(subject={"type": "user", "id": "did:web:x", "properties": {"trust_level": 2**40}}),
        an_evaluation(subject={"type": "user", "id": ALICE, "properties": {"groups": [1]}}),
        an_evaluation(action={}),
        an_evaluation(action={"name": "invoke", "properties": 1}),
        an_evaluation(resource="core.echo"),
        an_evaluation(resource={"type": "tool", "id": "x" * 513}),
        an_evaluation(context=[]),
        an_evaluation(context={"arguments": "text"}),
        an_evaluation(context={"session_id": "s" * 129}),
        an_evaluation(context={"risk": 7}),
        an_evaluation(context={"risk": {"score": "high"}}),
        an_evaluation(context={"risk": {"score": True}}),
        an_evaluation(context={"risk": {"score": 1.5}}),
        an_evaluation(context={"risk": {"score": 2**63}}),
        an_evaluation(context={"risk": {"No Name": 1}}),
        an_evaluation(context={"risk": {f"r{n}": n for n in range(33)}}),
    ],
)
async def test_a_hostile_body_gets_a_plain_400(mesh: Mesh, body: Any) -> None:
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), body)
    assert response.status_code == 400
    assert response.json()["reason"] in ("INVALID_JSON", "INVALID_REQUEST")


@pytest.mark.parametrize(
    "body",
    [{"evaluations": {}}, {"evaluations": [{}] * 51}, {"options": {"evaluations_semantic": "x"}}, {"options": 1}],
)
async def test_a_hostile_list_gets_a_plain_400(mesh: Mesh, body: dict[str, Any]) -> None:
    response = await ask(mesh.client(token=mesh.signer.mint(ALICE)), {**an_evaluation(), **body}, MANY)
    assert (response.status_code, response.json()["reason"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("path", [ONE, MANY])
@pytest.mark.parametrize(("token", "status"), [("", 401), ("x.y.z", 401)])
async def test_requests_without_a_good_token_are_refused(mesh: Mesh, path: str, token: str, status: int) -> None:
    body = an_evaluation() | ({"evaluations": [{}]} if path == MANY else {})
    response = await ask(mesh.client(token=token), body, path)
    assert response.status_code == status
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (MeshError(Reason.SCOPE_MISSING), 403),
        (MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=2.0), 503),
        (MeshError(Reason.POLICY_ENGINE_ERROR), 503),
    ],
)
async def test_what_authz_refuses_is_plain_http(mesh: Mesh, failure: MeshError, status: int) -> None:
    mesh.peers.authz.failure = failure
    client = mesh.client(token=mesh.signer.mint(ALICE))
    response = await ask(client, an_evaluation())
    assert response.status_code == failure.row.http_status
    assert response.json()["reason"] == failure.reason.name
    entry = (await ask(client, {**an_evaluation(), "evaluations": [{}]}, MANY)).json()["evaluations"][0]
    assert (entry["decision"], entry["context"]["error"]["status"]) == (False, failure.row.http_status)
    assert status in (403, 503)


async def test_a_failure_that_answers_for_all_ends_the_others(mesh: Mesh) -> None:
    mesh.peers.authz.failure, mesh.peers.authz.until = MeshError(Reason.TOKEN_EXPIRED), mesh.peers.registry.waiting
    asked = [{"resource": {"type": "tool", "id": name}} for name in ("core.echo", "core.slow")]
    client = mesh.client(token=mesh.signer.mint(ALICE))
    response = await ask(client, {**an_evaluation(), "evaluations": asked}, MANY, x_deadline_ms="300000")
    assert (response.status_code, response.json()["reason"]) == (401, "TOKEN_EXPIRED")
    await asyncio.wait_for(mesh.peers.registry.canceled.wait(), 10)


async def test_the_way_of_asking_is_held_to(mesh: Mesh) -> None:
    client = mesh.client(token=mesh.signer.mint(ALICE))
    got = await client.http.get(ONE)
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert (await ask(client, an_evaluation(), content_type="text/plain")).status_code == 400
    assert (await ask(client, b'{"a":"' + b"x" * (2 * 1024 * 1024) + b'"}')).status_code == 413
    assert (await ask(client, b'{"a":' * 1500 + b"1" + b"}" * 1500)).status_code == 413


async def test_the_metadata_is_public(mesh: Mesh) -> None:
    client = mesh.client(token="")
    found = (await client.http.get("/.well-known/authzen-configuration", headers={"host": "mesh.example:8443"})).json()
    assert found == {
        "policy_decision_point": "https://mesh.example:8443",
        "access_evaluation_endpoint": "https://mesh.example:8443/access/v1/evaluation",
        "access_evaluations_endpoint": "https://mesh.example:8443/access/v1/evaluations",
    }
    refused = await client.http.get("/.well-known/authzen-configuration", headers={"host": "a<b>"})
    assert (refused.status_code, refused.json()["reason"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("mesh.example", "https://mesh.example"),
        ("other.example:8443", "https://other.example:8443"),
        # A host that is not public is an address of the inside, or an invention of the caller.
        ("10.0.0.7:8080", "https://mesh.example"),
        ("evil.example", "https://mesh.example"),
        ("a<b>", "https://mesh.example"),
        ("mesh.example:99999", "https://mesh.example"),
    ],
)
async def test_the_public_address_is_shown_where_one_is_configured(host: str, address: str) -> None:
    scope = {"headers": [(b"host", host.encode())], "state": {}}
    origins = parse_origins("https://mesh.example,https://other.example:8443")
    document = json.loads(configuration(scope, origins).body)
    assert document["policy_decision_point"] == address
    assert document["access_evaluation_endpoint"] == f"{address}/access/v1/evaluation"
