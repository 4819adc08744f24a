"""The edge of a running mesh: what it lets through, what it refuses, and what it says then."""

from __future__ import annotations

import json
import os
import signal
import ssl
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from toolmesh.common.v1.error_table import ROWS, Reason
from toolmesh_sdk import Client, ToolmeshError

from localmesh.state.files import last_lines
from localmesh.state.secrets import read_secrets
from localmesh.state.state import State
from localmesh.tests.conftest import EDGE_BURST
from localmesh.tests.deadlines import eventually
from localmesh.tests.harness import Commands

SERVICES = ("executor", "registry", "authz", "approval", "audit")
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

# Of the envelope that the gateway sends.
FIELDS = {
    *("reason", "code", "category", "error_class", "retryable", "retry_after_ms", "message", "resolution"),
    *("trace_id", "invocation_id", "violations", "metadata"),
}


# More than the edge lets in from a stranger, so that it refuses by itself.
LARGE = b"{}".ljust(20_000)


class Edge:
    """The edge as a caller sees it, and tokens that are good or wrong in one way."""

    def __init__(self, commands: Commands) -> None:
        self.runtime = commands.runtime()
        self.log = State(commands.state).log_file("envoy")
        (self._pem,) = read_secrets(State(commands.state)).signing_keys.glob("*.pem")
        self.url = self.runtime["gateway"]["url"]
        self.client = httpx.Client(timeout=30)

    def token(self, key: Any = None, kid: str | None = None, **claims: Any) -> str:
        now = int(time.time())
        known = {"iss": self.runtime["issuer"], "aud": self.runtime["audience"], "sub": "did:web:a", "exp": now + 600}
        headers = {"kid": kid or self._pem.stem}
        return jwt.encode({**known, **claims}, key or self._pem.read_text(), algorithm="RS256", headers=headers)

    def headers(self, subject: str = "did:web:a", **more: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token(sub=subject)}", **more}

    def rpc(self, headers: dict[str, str], content: bytes = LARGE, url: str | None = None) -> httpx.Response:
        return self.client.post(f"{url or self.url}/rpc", content=content, headers=headers)

    def grpc_call(self, method: str, metadata: Iterable[tuple[str, str]]) -> dict[str, Any]:
        with grpc.insecure_channel(self.runtime["grpc"]["address"]) as channel:
            call: Any = channel.unary_unary(method)
            answer: dict[str, Any] = json.loads(call(b"", metadata=tuple(metadata), timeout=5))
            return answer


@pytest.fixture(scope="module")
def edge(mesh: Commands) -> Iterator[Edge]:
    edge = Edge(mesh)
    yield edge
    edge.client.close()


def assert_refused(answer: httpx.Response, reason: Reason) -> None:
    error = answer.json()["error"]
    assert answer.status_code == ROWS[reason].http_status
    assert (answer.json()["jsonrpc"], answer.json()["id"]) == ("2.0", None)
    assert (error["code"], error["message"]) == (ROWS[reason].jsonrpc_code, error["data"]["message"])
    assert_envelope(error["data"], reason)


def assert_envelope(found: dict[str, Any], reason: Reason) -> None:
    row = ROWS[reason]
    assert found.keys() == FIELDS
    assert (found["code"], found["reason"], found["message"]) == (row.code, reason.name, row.title)
    assert (found["category"], found["error_class"], found["resolution"]) == (
        row.category,
        row.error_class,
        row.resolution,
    )
    assert found["retryable"] is row.retryable
    assert (found["invocation_id"], found["violations"]) == ("", [])
    assert len(found["trace_id"]) == 32


def test_a_good_token_passes_and_is_passed_on(edge: Edge) -> None:
    headers = edge.headers()
    answer = edge.rpc(headers)
    assert answer.status_code == 200
    assert answer.json()["headers"]["authorization"] == headers["authorization"]


@pytest.mark.parametrize("scheme", ["bearer", "dpop", "DPoP"])
def test_the_name_of_a_scheme_may_be_written_small(edge: Edge, scheme: str) -> None:
    assert edge.rpc({"authorization": f"{scheme} {edge.token()}"}).status_code == 200


def test_no_token_is_refused(edge: Edge) -> None:
    assert_refused(edge.rpc({}), Reason.UNAUTHENTICATED)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", ["text/plain", "application/json", ""])
def test_what_is_not_grpc_never_reaches_a_grpc_service(edge: Edge, service: str, kind: str) -> None:
    """The service would reset it, and a reset counts against its health."""
    url = f"{edge.url}/toolmesh.{service}.v1.SomeService/DoThings"
    answer = edge.client.post(
        url, content=b"x", headers=edge.headers("did:web:kinds", **{"content-type": kind} if kind else {})
    )
    assert answer.status_code == 415
    assert_envelope(answer.json(), Reason.INVALID_REQUEST)
    assert edge.client.get(url, headers=edge.headers("did:web:kinds")).status_code == 405


def test_what_only_resembles_grpc_is_refused_too(edge: Edge) -> None:
    url = f"{edge.url}/toolmesh.executor.v1.SomeService/DoThings"
    like = edge.client.post(url, content=b"x", headers=edge.headers(**{"content-type": "application/grpcx"}))
    assert like.status_code == 415
    other = edge.client.post(url, content=b"x", headers=edge.headers(**{"content-type": "application/grpc+json"}))
    # A refusal in the form of gRPC.
    assert (other.status_code, other.headers["grpc-status"]) == (200, "2")


def test_the_ops_port_reads_and_obeys_nothing(edge: Edge) -> None:
    ops = f"http://127.0.0.1:{edge.runtime['ports']['envoy']}"
    assert edge.client.get(f"{ops}/ready").status_code == 200
    assert b"http.ingress" in edge.client.get(f"{ops}/stats?filter=http.ingress.downstream_rq_total").content
    for path in (
        "/quitquitquit",
        "/drain_listeners",
        "/logging?level=trace",
        "/runtime_modify?a=b",
        "/ready",
        "/stats",
    ):
        assert edge.client.post(f"{ops}{path}", headers={"origin": "http://evil.example"}).status_code == 404
    for path in ("/config_dump", "/certs", "/", "/stats/../config_dump"):
        assert edge.client.get(f"{ops}{path}").status_code == 404


def test_the_log_shows_a_request_id_only_if_it_is_a_uuid(edge: Edge) -> None:
    known = "0190a8c4-7e2b-7c3d-9f00-aabbccddeeff"
    for name in (known, "alice@example.com"):
        assert edge.rpc(edge.headers(**{"x-request-id": name})).headers["x-request-id"] == name
    eventually(lambda: known in edge.log.read_text())
    assert "alice@example.com" not in edge.log.read_text()


def test_a_small_message_is_refused_by_the_gateway_which_knows_its_ids(edge: Edge) -> None:
    now = int(time.time())
    for headers, reason in (
        ({}, Reason.UNAUTHENTICATED),
        ({"authorization": "Bearer nonsense"}, Reason.TOKEN_MALFORMED),
        ({"authorization": f"Bearer {edge.token(exp=now - 600)}"}, Reason.TOKEN_EXPIRED),
        ({"authorization": f"Bearer {edge.token(aud='other')}"}, Reason.TOKEN_AUDIENCE_INVALID),
        ({"authorization": f"Bearer {edge.token(iss='other')}"}, Reason.TOKEN_AUDIENCE_INVALID),
    ):
        seen = edge.rpc(headers | {"x-toolmesh-refusal": "nothing"}, b"{}").json()["headers"]
        assert seen["x-toolmesh-refusal"] == reason.name
    assert "x-toolmesh-refusal" not in edge.rpc(edge.headers(), b"{}").json()["headers"]


def test_a_token_in_the_address_is_no_token(edge: Edge) -> None:
    answer = edge.client.post(f"{edge.url}/rpc?access_token={edge.token()}", content=LARGE)
    assert_refused(answer, Reason.UNAUTHENTICATED)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1}, Reason.TOKEN_EXPIRED),
        ({"aud": "somebody-else"}, Reason.TOKEN_AUDIENCE_INVALID),
        ({"iss": "https://elsewhere"}, Reason.TOKEN_AUDIENCE_INVALID),
    ],
)
def test_a_wrong_claim_is_refused_for_what_it_is(edge: Edge, claims: dict[str, Any], reason: Reason) -> None:
    assert_refused(edge.rpc({"authorization": f"Bearer {edge.token(**claims)}"}), reason)


@pytest.mark.parametrize("kid", [None, "unknown"])
def test_a_strangers_signature_is_refused(edge: Edge, kid: str | None) -> None:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert_refused(edge.rpc({"authorization": f"Bearer {edge.token(stranger, kid)}"}), Reason.TOKEN_SIGNATURE_INVALID)


def test_what_is_no_token_at_all_is_malformed(edge: Edge) -> None:
    assert_refused(edge.rpc({"authorization": "Bearer abc"}), Reason.TOKEN_MALFORMED)


def test_a_body_over_the_cap_is_refused_and_one_at_the_cap_is_not(edge: Edge) -> None:
    cap = 4 * 1024 * 1024
    assert edge.rpc(edge.headers(), b"x" * cap).json()["size"] == cap
    assert_refused(edge.rpc(edge.headers(), b"x" * (cap + 1)), Reason.PAYLOAD_TOO_LARGE)


def test_json_rpc_is_called_with_post_only(edge: Edge) -> None:
    answer = edge.client.get(f"{edge.url}/rpc", headers=edge.headers())
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["data"]["reason"] == "INVALID_REQUEST"


@pytest.mark.parametrize("path", ["/rpc", "/access/v1/evaluation"])
def test_a_connection_that_is_to_become_another_is_no_matter_of_policy(edge: Edge, path: str) -> None:
    asked = edge.headers(connection="upgrade", upgrade="websocket")
    answer = edge.client.post(f"{edge.url}{path}", content=b"{}", headers=asked).json()
    assert (answer["error"]["data"] if "error" in answer else answer)["reason"] == "INVALID_REQUEST"


def test_one_subject_over_its_rate_does_not_slow_another(edge: Edge) -> None:
    greedy = edge.headers("did:web:greedy")
    answers = (edge.rpc(greedy) for _ in range(10 * EDGE_BURST))
    limited = next(answer for answer in answers if answer.status_code != 200)
    assert_refused(limited, Reason.RATE_LIMITED)
    assert "retry-after" in limited.headers
    assert limited.json()["error"]["data"]["retry_after_ms"] == 1000
    assert edge.rpc(edge.headers("did:web:modest")).status_code == 200


def test_identities_that_a_caller_claims_are_taken_off(edge: Edge) -> None:
    forged = {
        "x-jwt-sub": "admin",
        "X-Authz-Tenant": "acme",
        "x-toolmesh-peer": "executor",
        "x-forwarded-client-cert": "URI=spiffe://toolmesh.local/operator",
        "x-envoy-retry-on": "5xx",
    }
    seen = edge.rpc(edge.headers(**forged)).json()["headers"]
    assert not {name.lower() for name in forged} & seen.keys()


@pytest.mark.parametrize("chosen", ["01a1dd21-80ed-7007-9ffe-9a53bfb7c11c", "order-17"])
def test_a_callers_own_request_id_stays_as_it_is(edge: Edge, chosen: str) -> None:
    answer = edge.rpc(edge.headers(**{"x-request-id": chosen}))
    assert answer.headers["x-request-id"] == answer.json()["headers"]["x-request-id"] == chosen


def test_a_trace_begins_at_the_edge_and_a_callers_own_goes_on(edge: Edge) -> None:
    begun = edge.rpc(edge.headers()).json()["headers"]["traceparent"].split("-")
    assert [len(part) for part in begun] == [2, 32, 16, 2]
    assert begun[3] == "01"
    assert edge.rpc(edge.headers(traceparent=TRACEPARENT)).json()["headers"]["traceparent"] == TRACEPARENT


@pytest.mark.parametrize(
    "sent",
    [
        {"x-request-id": "order-17"},
        {"x-request-id": "00000000-0000-0000-0000-000000000000"},
        {"traceparent": "nonsense", "tracestate": "a=b"},
        {"traceparent": TRACEPARENT.upper(), "tracestate": "a=b"},
        # What the services would not go on with.
        {"traceparent": "ff" + TRACEPARENT[2:], "tracestate": "a=b"},
        {"traceparent": TRACEPARENT[:36] + "0" * 16 + "-01"},
        {"traceparent": TRACEPARENT + "x"},
        {"traceparent": TRACEPARENT + "-more"},
        {"traceparent": f"{TRACEPARENT},{TRACEPARENT}"},
    ],
)
def test_whatever_a_caller_names_its_request_a_trace_begins(edge: Edge, sent: dict[str, str]) -> None:
    seen = [edge.rpc(edge.headers(**sent)).json()["headers"] for _ in range(2)]
    assert seen[0]["traceparent"] != seen[1]["traceparent"]
    for headers in seen:
        trace = headers["traceparent"].split("-")[1]
        assert (len(trace), trace.lower()) == (32, trace)
        assert not {"tracestate", "x-toolmesh-random"} & headers.keys()
    assert_refused(edge.rpc(sent), Reason.UNAUTHENTICATED)


def test_health_and_keys_need_no_token_and_other_paths_lead_nowhere(edge: Edge) -> None:
    assert edge.client.get(f"{edge.url}/healthz").status_code == 200
    assert edge.client.get(f"{edge.url}/.well-known/jwks.json").json()["keys"]
    nowhere = edge.client.post(f"{edge.url}/nowhere", headers=edge.headers())
    assert nowhere.status_code == 404
    assert_envelope(nowhere.json(), Reason.METHOD_NOT_FOUND)


def test_the_same_edge_answers_behind_tls(edge: Edge) -> None:
    url = f"{edge.runtime['gateway']['tls_url']}/rpc"
    trusted = ssl.create_default_context(cafile=edge.runtime["ca"])
    assert httpx.post(url, content=b"{}", headers=edge.headers(), verify=trusted).status_code == 200
    assert_refused(httpx.post(url, content=LARGE, verify=trusted), Reason.UNAUTHENTICATED)


@pytest.mark.parametrize("name", SERVICES)
def test_grpc_reaches_each_service_as_the_edge(edge: Edge, name: str) -> None:
    headers = [*edge.headers().items(), ("x-jwt-sub", "admin")]
    answer = edge.grpc_call(f"/toolmesh.{name}.v1.{name.capitalize()}Service/GetThing", headers)
    assert answer["name"] == name
    assert answer["peer"][0] == "spiffe://toolmesh.local/edge"
    assert answer["metadata"]["authorization"] == headers[0][1]
    assert "traceparent" in answer["metadata"]
    assert "x-jwt-sub" not in answer["metadata"]


def test_grpc_without_a_token_is_unauthenticated(edge: Edge) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        edge.grpc_call("/toolmesh.executor.v1.ExecutorService/Invoke", [])
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", ["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/Info"])
def test_health_and_unknown_methods_of_reflection_are_not_to_be_had(edge: Edge, method: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        edge.grpc_call(method, edge.headers().items())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_gateway_that_hangs_neither_breaks_a_deadline_nor_stays_an_outage(edge: Edge, mesh: Commands) -> None:
    def call() -> httpx.Response:
        return edge.rpc(edge.headers(**{"x-deadline-ms": "400"}))

    gateway = mesh.part("gateway")["pid"]
    os.kill(gateway, signal.SIGSTOP)
    try:
        assert_refused(call(), Reason.DEADLINE_EXCEEDED)
        assert_refused(
            eventually(lambda: answer if (answer := call()).status_code == 503 else None), Reason.SERVICE_UNAVAILABLE
        )
    finally:
        os.kill(gateway, signal.SIGCONT)
    eventually(lambda: call().status_code == 200)


def test_a_call_that_was_lost_behind_the_edge_counts_as_unanswered(edge: Edge, mesh: Commands) -> None:
    executor = mesh.part("executor")["pid"]
    address = edge.runtime["grpc"]["address"]
    with Client(address, token=edge.token()) as client, pytest.raises(ToolmeshError) as caught:
        client.call("core.deadly")
    # It may have run: without a key it is not repeated.
    assert (caught.value.reason, caught.value.answered, caught.value.attempts) == (Reason.SERVICE_UNAVAILABLE, False, 1)
    eventually(lambda: mesh.part("executor")["pid"] not in (None, executor))


def test_every_call_is_in_the_log_with_its_subject_and_trace(edge: Edge) -> None:
    request = edge.rpc(edge.headers(traceparent=TRACEPARENT)).headers["x-request-id"]
    entry = eventually(lambda: _logged(edge.log, request))
    assert entry["trace_id"] == TRACEPARENT.split("-")[1]
    assert (entry["subject"], entry["status"], entry["route"]) == ("did:web:a", 200, "jsonrpc")


def test_an_ordinary_call_leaves_the_script_of_the_edge_without_an_error(edge: Edge) -> None:
    request = edge.rpc(edge.headers()).headers["x-request-id"]
    assert eventually(lambda: _logged(edge.log, request))
    assert [line for line in last_lines(edge.log, 2000) if "[error][lua]" in line] == []


def _logged(log: Path, request: str) -> dict[str, Any] | None:
    lines = [line for line in last_lines(log, 2000) if request in line]
    found: dict[str, Any] | None = json.loads(lines[0]) if lines else None
    return found
