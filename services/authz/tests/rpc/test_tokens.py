"""Delegating, narrowing and exchanging over real mutual TLS, with a real database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.authz.v1 import capability_token_pb2 as token_pb
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.authz.tests.adapters.issuers.test_did_key import ED25519
from services.authz.tests.adapters.issuers.test_tokens import Provider
from services.authz.tests.adapters.issuers.test_trusted_issuers import entry
from services.authz.tests.conftest import ALICE
from services.authz.tests.token_issuer import BOT

ECHO = [ToolGrant(tool="echo", version_constraint="^1")]


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def bearer(token: str) -> Any:
    return (("authorization", f"Bearer {token}"),) if token else ()


async def delegate(mesh: Any, token: str, peer: str = "edge", **asked: Any) -> Any:
    request = pb.DelegateTokenRequest(**{"agent": BOT, "part": pb.Part(), **asked})
    return await rpc.TokenServiceStub(mesh.channel(peer)).DelegateToken(request, metadata=bearer(token))


async def narrow(mesh: Any, token: str, peer: str = "edge", **part: Any) -> Any:
    request = pb.NarrowTokenRequest(part=pb.Part(**{"tools": ECHO, **part}))
    return await rpc.TokenServiceStub(mesh.channel(peer)).NarrowToken(request, metadata=bearer(token))


async def test_authority_passes_from_a_user_to_an_agent_to_one_call(mesh: Any) -> None:
    user = await mesh.mint(
        scopes=["tools:call", "tools:read"],
        delegation_depth=2,
        resource_constraints=["file:/srv/*"],
        argument_constraints=[token_pb.ArgumentConstraint(tool="echo", schema=b'{"maxProperties": 1}')],
        budget=token_pb.Budget(calls=5, running_time=Duration(seconds=1, nanos=500_000_000)),
    )
    agent = await delegate(mesh, user.token, part=pb.Part(scopes=["tools:call"], budget=token_pb.Budget(calls=3)))
    call = await narrow(mesh, agent.token, lifetime=Duration(seconds=30))
    assert (call.claims.subject, call.claims.agent, call.claims.delegation_depth) == (ALICE, BOT, 0)
    assert [(actor.subject, actor.token_id) for actor in call.claims.actor_chain] == [
        (ALICE, user.claims.token_id),
        (BOT, agent.claims.token_id),
    ]
    assert [ancestor.claims.token_id for ancestor in call.claims.lineage] == [
        *(user.claims.token_id, agent.claims.token_id)
    ]
    assert call.claims.budget == token_pb.Budget(calls=3, running_time=Duration(seconds=1, nanos=500_000_000))
    assert list(call.claims.resource_constraints) == ["file:/srv/*"]
    assert [bytes(c.schema) for c in call.claims.argument_constraints] == [b'{"maxProperties":1}']
    found = await mesh.introspect(call.token)
    assert (found.active, found.claims) == (True, call.claims)
    with psycopg.connect(mesh.database_url) as connection:
        rows = connection.execute(
            "select jti, tier, agent, parent_jti, root_jti from authz.issued_tokens order by issued_at, jti"
        ).fetchall()
    root = user.claims.token_id
    assert set(rows) == {
        (root, "user", "", "", root),
        (agent.claims.token_id, "agent", BOT, root, root),
        (call.claims.token_id, "invocation", BOT, agent.claims.token_id, root),
    }


async def test_a_child_token_is_checked_by_its_own_authority(mesh: Any) -> None:
    user = (await mesh.mint()).token
    child = (await narrow(mesh, user)).token
    assert (await mesh.check(child)).HasField("allow")
    assert (await mesh.check(child, tool_version="tools/core.other/versions/1.0.0")).HasField("deny")
    assert (await mesh.check(child, tool_version="tools/core.echo/versions/2.0.0")).HasField("deny")
    assert (await mesh.check(child, required_scopes=["tools:call"])).HasField("deny")


async def test_an_exceeding_delegation_names_every_dimension(mesh: Any) -> None:
    user = (await mesh.mint(tools=ECHO, trust_level=10, delegation_depth=1)).token
    part = pb.Part(tools=[ToolGrant(tool="*")], scopes=["tools:admin"], trust_level=11)
    error = await refusal(delegate(mesh, user, part=part, delegation_depth=1))
    assert error.reason is Reason.AUTHORITY_EXCEEDED
    assert [v.path for v in error.violations] == ["tools[0].tool", "scopes", "delegation_depth", "trust_level"]


async def test_only_a_caller_passes_authority_on(mesh: Any) -> None:
    token = (await mesh.mint()).token
    for peer in ("edge", "orchestrator", "gateway"):
        assert (await delegate(mesh, token, peer)).token
        assert (await refusal(delegate(mesh, "", peer))).reason is Reason.UNAUTHENTICATED
        assert (await refusal(narrow(mesh, "", peer))).reason is Reason.UNAUTHENTICATED
    for peer in ("operator", "executor", "registry"):
        assert (await refusal(delegate(mesh, token, peer))).reason is Reason.PEER_NOT_ALLOWED


async def test_an_agent_must_be_known(mesh: Any) -> None:
    token = (await mesh.mint()).token
    error = await refusal(delegate(mesh, token, agent="did:web:example.com:agents:bot"))
    assert (error.reason, error.row.code) == (Reason.DID_NOT_FOUND, "E3207")
    bound = await delegate(mesh, token, agent=ED25519, bind_to_agent_key=True)
    assert bound.claims.confirmation.startswith("jkt:")


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture
async def trusting(start: Callable[..., Any], tmp_path: Path, provider: Provider) -> Any:
    """A running authz that trusts an outside issuer."""
    keys, issuers = tmp_path / "keys.json", tmp_path / "issuers.json"
    keys.write_bytes(provider.jwks())
    issuers.write_text(json.dumps({"issuers": [entry(jwks=str(keys))]}))
    return await start(TOOLMESH_TRUSTED_ISSUERS=str(issuers))


async def exchange(mesh: Any, token: str, peer: str = "edge") -> Any:
    request = pb.ExchangeTokenRequest(subject_token=token)
    return await rpc.TokenServiceStub(mesh.channel(peer)).ExchangeToken(request)


async def test_an_external_token_is_refused_until_it_is_exchanged(trusting: Any, provider: Provider) -> None:
    external = provider.sign(sub="carol")
    assert (await refusal(trusting.check(external))).reason in (
        Reason.TOKEN_AUDIENCE_INVALID,
        Reason.TOKEN_SIGNATURE_INVALID,
    )
    for peer in ("edge", "orchestrator", "gateway", "operator"):
        made = await exchange(trusting, external, peer)
    assert made.claims.subject == "did:web:login.example.com:users:carol"
    assert (await trusting.check(made.token)).HasField("allow")
    assert (await delegate(trusting, made.token)).claims.subject == made.claims.subject
    assert (await refusal(exchange(trusting, external, "executor"))).reason is Reason.PEER_NOT_ALLOWED


async def test_a_mesh_without_trusted_issuers_exchanges_no_token(mesh: Any, provider: Provider) -> None:
    own = (await mesh.mint()).token
    for token in (provider.sign(), own):
        assert (await refusal(exchange(mesh, token))).reason is Reason.TOKEN_AUDIENCE_INVALID


async def test_an_assertion_is_for_the_executor_and_no_token_of_the_mesh(mesh: Any) -> None:
    token = (await mesh.mint()).token
    request = pb.IssueAssertionRequest(audience="https://login.example.com/token")

    def ask(peer: str, token: str = token) -> Any:
        return rpc.TokenServiceStub(mesh.channel(peer)).IssueAssertion(request, metadata=bearer(token))

    assertion = (await ask("executor")).assertion
    assert not (await mesh.introspect(assertion)).active
    assert (await refusal(ask("executor", assertion))).reason in (
        Reason.TOKEN_AUDIENCE_INVALID,
        Reason.TOKEN_MALFORMED,
    )
    assert (await refusal(ask("executor", ""))).reason is Reason.UNAUTHENTICATED
    for peer in ("edge", "orchestrator", "gateway", "operator", "registry"):
        assert (await refusal(ask(peer))).reason is Reason.PEER_NOT_ALLOWED
