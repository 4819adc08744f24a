"""What the edge answers by itself: to preflights of browsers, to refused callers, and to tokens of any length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from grpc_reflection.v1alpha import reflection_pb2
from toolmesh.authz.v1 import token_service_pb2, token_service_pb2_grpc

from services.registry.public_services import PUBLIC_SERVICES
from tests.harness.mesh import ALICE, Mesh, invoke
from tests.harness.stores import wait_until
from tests.scenarios.policy.test_refusals import code_of

PAGE, STRANGER = "http://localhost:3000", "https://elsewhere.example"
ASKING = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


@pytest.fixture(scope="module")
def token(mesh: Mesh) -> str:
    return mesh.token()


@pytest.fixture(scope="module")
def fields(mesh: Mesh, token: str) -> set[str]:
    """The fields of the envelope as the gateway sends it."""
    return set(mesh.rpc("no.such", {}, token=token).json()["error"]["data"])


@pytest.fixture
def edge(mesh: Mesh) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mesh.url, timeout=30) as client:
        yield client


def bearing(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def assert_envelope(found: dict[str, Any], fields: set[str], reason: str) -> None:
    assert (found.keys(), found["reason"]) == (fields, reason)  # type: ignore[comparison-overlap]
    assert len(found["trace_id"]) == 32


def test_a_page_may_ask_first_and_then_call(edge: httpx.Client, token: str) -> None:
    allowed = edge.options("/rpc", headers={"origin": PAGE, **ASKING})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "POST" in allowed.headers["access-control-allow-methods"]
    # What a page sends with JSON-RPC, and what the usual clients of gRPC-Web send by themselves.
    sent = {"authorization", "content-type", "x-request-id", "x-deadline-ms", "x-grpc-web", "x-user-agent"}
    assert sent <= set(allowed.headers["access-control-allow-headers"].split(","))
    call = {"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}
    answer = edge.post("/rpc", json=call, headers={"origin": PAGE, **bearing(token)})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    shown = set(answer.headers["access-control-expose-headers"].split(","))
    assert {"x-request-id", "x-trace-id", "retry-after", "grpc-status", "grpc-status-details-bin"} <= shown


def test_a_page_can_read_why_it_was_refused(edge: httpx.Client) -> None:
    refused = edge.post("/rpc", json={}, headers={"origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)


@pytest.mark.parametrize(("headers", "status"), [({"origin": STRANGER, **ASKING}, 405), ({}, 401)])
def test_other_peers_get_no_further_by_asking(edge: httpx.Client, headers: dict[str, str], status: int) -> None:
    answer = edge.options("/rpc", headers=headers)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_the_access_log_has_trace_subject_method_and_tool_and_no_client_sees_them(mesh: Mesh, token: str) -> None:
    answer = mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "hi"}}, token=token)
    assert [name for name in answer.headers if name.startswith("x-toolmesh")] == []
    trace = answer.headers["x-trace-id"]

    def line() -> dict[str, Any] | None:
        return next((each for each in mesh.logs("envoy") if each.get("trace_id") == trace), None)

    wait_until(lambda: line() is not None, "the access log", 60)
    found = line()
    assert found is not None
    shown = {name: found[name] for name in ("subject", "rpc_method", "tool", "status")}
    assert shown == {"subject": ALICE, "rpc_method": "rpc/tools.invoke", "tool": "core.echo", "status": 200}


def test_events_of_a_call_pass_the_edge_as_they_happen(edge: httpx.Client, token: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools.invoke", "params": {"tool": "echo", "arguments": {"text": "x"}}}
    headers = {
        **bearing(token),
        "accept": "text/event-stream",
        "idempotency-key": "events-1",
        "request-timeout": "25.5",
    }
    with edge.stream("POST", "/rpc", json=call, headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream"
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    messages = [json.loads(each) for each in data]
    assert {each["method"] for each in messages[:-1]} == {"invocations.event"}
    assert messages[-1]["result"]["structured_content"] == {"text": "x"}


def test_tokens_are_made_at_a_rate_of_their_own(mesh: Mesh) -> None:
    token = mesh.token(sub="did:web:toolmesh.local:users:many")
    metadata = (("authorization", f"Bearer {token}"),)
    empty = token_service_pb2.DelegateTokenRequest()
    with mesh.edge_channel() as channel:
        tokens = token_service_pb2_grpc.TokenServiceStub(channel)
        calls = [tokens.DelegateToken.future(empty, metadata=metadata, timeout=120) for _ in range(1000)]
        codes = {call.code() for call in calls}
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
    # The rate of calls is another.
    assert mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "hi"}}, token=token).status_code == 200


def test_json_rpc_is_still_called_with_post_only(edge: httpx.Client, token: str) -> None:
    for method in ("GET", "OPTIONS"):
        answer = edge.request(method, "/rpc", headers=bearing(token))
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("sent", "reason"), [({}, "UNAUTHENTICATED"), ({"authorization": "Bearer abc"}, "TOKEN_MALFORMED")]
)
def test_a_refusal_at_rpc_is_the_gateways_envelope(
    edge: httpx.Client, fields: set[str], sent: dict[str, str], reason: str
) -> None:
    for more in ({}, {"x-request-id": "mine"}, {"traceparent": "nonsense"}):
        answer = edge.post("/rpc", json={}, headers={**sent, **more})
        error = answer.json()["error"]
        assert_envelope(error["data"], fields, reason)
        assert (answer.status_code, error["message"]) == (401, error["data"]["message"])


@pytest.mark.parametrize("path", ["/access/v1/evaluation", "/access/v1/evaluations", "/access/v1/nope", "/nowhere"])
@pytest.mark.parametrize(("sent", "reason"), [("", "UNAUTHENTICATED"), ("abc", "TOKEN_MALFORMED")])
def test_a_refusal_anywhere_else_is_the_envelope_alone(
    edge: httpx.Client, fields: set[str], path: str, sent: str, reason: str
) -> None:
    answer = edge.post(path, json={}, headers={**bearing(sent), "x-request-id": "mine"})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/json")
    assert (answer.headers["x-request-id"], "Bearer" in answer.headers["www-authenticate"]) == ("mine", True)
    assert_envelope(answer.json(), fields, reason)


@pytest.mark.parametrize("path", ["/nowhere", "/access/v1/nope", "/.well-known/nope"])
def test_where_nothing_is_an_envelope_says_so(edge: httpx.Client, fields: set[str], token: str, path: str) -> None:
    answer = edge.get(path, headers=bearing(token))
    assert answer.status_code == 404
    assert_envelope(answer.json(), fields, "METHOD_NOT_FOUND")


def test_a_body_that_the_edge_does_not_take_is_refused_in_the_form_of_its_path(
    edge: httpx.Client, fields: set[str], token: str
) -> None:
    body = b"x" * (5 * 1024 * 1024)
    sent = {"content-type": "application/json", **bearing(token)}
    asked = edge.post("/access/v1/evaluation", content=body, headers=sent)
    called = edge.post("/rpc", content=body, headers=sent)
    assert (asked.status_code, called.status_code) == (413, 413)
    for found in (asked.json(), called.json()["error"]["data"]):
        assert_envelope(found, fields, "PAYLOAD_TOO_LARGE")


def test_the_root_says_where_everything_is_without_a_token(edge: httpx.Client, fields: set[str], token: str) -> None:
    pointer = edge.get("/").json()
    assert edge.post(pointer["rpc"], json=pointer["describe"], headers=bearing(token)).json()["result"]["openrpc"]
    assert edge.get(pointer["keys"]).json()["keys"]
    refused = edge.post("/", json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert_envelope(refused.json(), fields, "INVALID_REQUEST")


def refusal(channel: grpc.Channel, method: str, token: str = "") -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(b"", metadata=tuple(bearing(token).items()), timeout=10)  # type: ignore[arg-type]
    return caught.value


def test_grpc_keeps_its_own_errors(mesh: Mesh, token: str) -> None:
    with mesh.edge_channel() as channel:
        with pytest.raises(grpc.RpcError) as caught:
            invoke(channel, "echo")
        assert (caught.value.code(), code_of(caught.value)) == (grpc.StatusCode.UNAUTHENTICATED, "E3005")
        unknown = refusal(channel, "/no.such.Service/Method", token)
        assert (unknown.code(), code_of(unknown)) == (grpc.StatusCode.UNIMPLEMENTED, "E3007")
        # Of what has no row for gRPC, the words are not a body in JSON either.
        malformed = refusal(channel, "/toolmesh.executor.v1.ExecutorService%2FInvoke", token)
        assert malformed.code() is grpc.StatusCode.INTERNAL
        assert "{" not in malformed.details()  # type: ignore[operator]


def test_reflection_describes_the_public_services_to_token_holders_only(mesh: Mesh, token: str) -> None:
    with mesh.edge_channel() as channel:

        def ask(version: str, bearer: str, **question: str) -> Any:
            method: Any = channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            asked = [reflection_pb2.ServerReflectionRequest(**question)]  # type: ignore[arg-type]
            return next(method(iter(asked), metadata=tuple(bearing(bearer).items()), timeout=30))

        for version in ("v1", "v1alpha"):
            listed = ask(version, token, list_services="").list_services_response.service
            assert set(PUBLIC_SERVICES) <= {service.name for service in listed}
            for stranger in ("", "x.y.z"):
                with pytest.raises(grpc.RpcError) as caught:
                    ask(version, stranger, list_services="")
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for name in PUBLIC_SERVICES:
            assert ask("v1", token, file_containing_symbol=name).HasField("file_descriptor_response")
        for name in ("toolmesh.authz.v1.AuthzService", "toolmesh.registry.v1.RunnerService", "grpc.health.v1.Health"):
            assert ask("v1", token, file_containing_symbol=name).HasField("error_response")
        assert refusal(channel, "/grpc.health.v1.Health/Check", token).code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_page_that_speaks_grpc_reads_the_envelope_from_a_header(edge: httpx.Client) -> None:
    sent = {"content-type": "application/grpc-web+proto", "origin": PAGE}
    answer = edge.post("/toolmesh.executor.v1.ExecutorService/Invoke", content=b"\0" * 5, headers=sent)
    assert answer.status_code == 401
    assert "grpc-status-details-bin" in answer.headers
    assert answer.headers["content-type"] != "application/json"
