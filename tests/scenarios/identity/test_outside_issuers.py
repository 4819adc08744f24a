"""A user of an outside issuer, from their own token to a tool's answer: exchanged at the edge, with keys that authz
fetches from where
the issuer publishes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc

from services.authz.tests.adapters.issuers.test_tokens import Provider
from services.authz.tests.adapters.issuers.test_trusted_issuers import entry
from services.authz.tests.https_server import HttpsServer, serving
from tests.harness.clients.holder import Holder
from tests.harness.executors.replicas import code_of
from tests.harness.mesh import Mesh, invoke, running_mesh

ECHO = b'{"text":"from outside"}'


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture(scope="module")
def https_server(pki: Any, provider: Provider) -> Iterator[HttpsServer]:
    """Where the issuer publishes its keys."""
    with serving(pki) as server:
        server.documents["/keys"] = provider.jwks("RS256")
        yield server


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory, pki: Any, https_server: HttpsServer) -> Iterator[Mesh]:
    """A mesh that trusts the issuer, and makes tokens that hold for a month."""
    file = tmp_path_factory.mktemp("issuers") / "issuers.json"
    issuer = entry(jwks=https_server.address + "/keys", ca=str(pki.ca), algorithms=["RS256"])
    file.write_text(json.dumps({"issuers": [issuer]}))
    settings = {"TOOLMESH_TRUSTED_ISSUERS": str(file), "TOOLMESH_MAX_TOKEN_LIFETIME": str(30 * 86_400)}
    with running_mesh(tmp_path_factory.mktemp("trusting"), **settings) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def edge(trusting: Mesh) -> Iterator[grpc.Channel]:
    with trusting.edge_channel() as channel:
        yield channel


def exchanged(edge: grpc.Channel, token: str) -> pb.ExchangeTokenResponse:
    """Exchange a token, without any of the mesh."""
    return rpc.TokenServiceStub(edge).ExchangeToken(pb.ExchangeTokenRequest(subject_token=token), timeout=10)


def refused(call: Any) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return code_of(caught.value)


def test_users_of_an_issuer_call_what_its_users_are_granted(
    trusting: Mesh, edge: grpc.Channel, provider: Provider
) -> None:
    token = exchanged(edge, provider.sign()).token
    assert json.loads(invoke(edge, "echo", ECHO, token=token).result.structured_content) == json.loads(ECHO)
    answer = trusting.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=token).json()
    assert "error" not in answer
    assert refused(lambda: invoke(edge, "clock_now", token=token)) == "E3204"


def test_the_new_token_says_what_the_mesh_grants_and_nothing_that_the_old_one_claims(
    edge: grpc.Channel, provider: Provider
) -> None:
    claims = exchanged(edge, provider.sign()).claims
    assert claims.subject == "did:web:login.example.com:users:auth0%7Calice%2F%C3%A4%3A1"
    assert (claims.tenant, list(claims.groups), list(claims.scopes)) == ("acme", ["ops"], ["tools:call"])
    assert [grant.tool for grant in claims.tools] == ["arith*", "echo"]
    assert claims.trust_level == 20


def test_a_client_of_oauth_exchanges_its_token_over_http(
    trusting: Mesh, edge: grpc.Channel, provider: Provider
) -> None:
    """RFC 8693 through the real edge, without a token of the mesh, bound to a key by a proof."""
    holder, address = Holder(), f"{trusting.url}/token"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": provider.sign(),
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "scope": "tools:call",
    }
    with httpx.Client(verify=False, trust_env=False, timeout=10) as client:  # noqa: S501  (the mesh of a test)
        answered = client.post(address, data=form)
        assert (answered.status_code, answered.headers["cache-control"]) == (200, "no-store")
        answer = answered.json()
        assert (answer["token_type"], answer["scope"]) == ("Bearer", "tools:call")
        assert invoke(edge, "echo", ECHO, token=answer["access_token"])
        proof = {"dpop": holder.proof("", address, ath=None)}
        bound = client.post(address, data={**form, "subject_token": provider.sign()}, headers=proof).json()
        assert bound["token_type"] == "DPoP"
        assert refused(lambda: invoke(edge, "echo", ECHO, token=bound["access_token"])) == "E3214"
        wrong = client.post(address, data={**form, "subject_token": Provider().sign()})
        assert (wrong.status_code, wrong.json()["error"]) == (400, "invalid_request")
        assert client.post(address, data={**form, "scope": "authz:admin"}).json()["error"] == "invalid_scope"
        assert client.get(address).status_code == 405


def test_keys_are_fetched_from_the_issuer_and_no_other_key_signs_for_it(
    edge: grpc.Channel, provider: Provider, https_server: HttpsServer
) -> None:
    exchanged(edge, provider.sign())
    assert https_server.requested == ["/keys"]
    assert refused(lambda: exchanged(edge, Provider().sign())) == "E3202"
    assert refused(lambda: exchanged(edge, provider.sign(exp=1))) == "E3201"
    assert https_server.requested == ["/keys"]


def test_a_token_that_authz_may_make_is_let_in_however_long_it_holds(trusting: Mesh, edge: grpc.Channel) -> None:
    long = trusting.token(ttl="29d")
    assert trusting.rpc("rpc.discover", {}, token=long).json()["result"]["openrpc"]
    assert invoke(edge, "echo", ECHO, token=long)
