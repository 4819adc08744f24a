"""Some rows of the table of hostile tokens, and authority that is passed on, through the whole mesh."""

from __future__ import annotations

from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from toolmesh.authz.v1 import capability_token_pb2 as token_pb
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc

from tests.harness.clients.hostile import ACCEPTED, BOT, CASES, Workshop, outcomes
from tests.harness.mesh import Mesh, cli, invoke
from tests.scenarios.policy.test_refusals import code_of

# Those that the edge and a service could see differently.
THROUGH_THE_EDGE = [
    "a token as the mesh signs it",
    "`alg: none`, with the signature of a good token",
    "`alg: HS256`, keyed with the public key as PEM",
    "signed by a stranger, with `jku`",
    "signed by a stranger, with `jwk`",
    "well signed, with an unknown `kid`",
    "expired 60 s ago",
    "another audience",
    "a derived token, each step a subset",
    "a child with a scope that the parent lacks",
]


@pytest.fixture(scope="module")
def workshop(mesh: Mesh) -> Workshop:
    """What holds the mesh's own key."""
    folder = mesh.state / "secrets" / "signing-keys"
    key: Any = serialization.load_pem_private_key(sorted(folder.glob("*.pem"))[-1].read_bytes(), None)
    kid = jwt.get_unverified_header(mesh.token())["kid"]
    return Workshop(key, kid, mesh.runtime["issuer"], mesh.runtime["audience"])


def outcome(channel: grpc.Channel, token: str) -> str:
    try:
        invoke(channel, "echo", b'{"text":"x"}', token=token)
    except grpc.RpcError as error:
        return code_of(error)
    return ACCEPTED


def test_straight_to_the_executor_every_row_ends_as_the_table_says(
    mesh: Mesh, workshop: Workshop, repository: Any
) -> None:
    with mesh.direct_channel("executor") as channel:
        found = {case: outcome(channel, make(workshop)) for case, make in CASES.items()}
    table = outcomes(repository)
    assert {case: ended for case, ended in found.items() if ended != table[case]} == {}


@pytest.mark.parametrize("case", THROUGH_THE_EDGE)
def test_through_the_edge_too(mesh: Mesh, workshop: Workshop, repository: Any, case: str) -> None:
    with mesh.edge_channel() as channel:
        ended, expected = outcome(channel, CASES[case](workshop)), outcomes(repository)[case]
    # The edge calls an algorithm that it does not know malformed.
    assert ended == expected or (ended, expected) == ("E3203", "E3202")


def test_authority_passes_on_through_the_edge_and_shrinks(mesh: Mesh) -> None:
    own = mesh.token(tools="echo,arith*", scopes="tools:call,tools:read")
    made = cli(
        *("token", "delegate", BOT, "--token", own, "--tools", "echo", "--scopes", "tools:call", "--raw"),
        *("--arguments", 'echo={"properties": {"text": {"maxLength": 3}}}'),
        state=mesh.state,
    ).stdout.strip()
    with mesh.edge_channel() as channel:
        assert outcome(channel, made) == ACCEPTED
        with pytest.raises(grpc.RpcError) as caught:
            invoke(channel, "echo", b'{"text":"too long"}', token=made)
        assert code_of(caught.value) == "E3213"
        with pytest.raises(grpc.RpcError) as caught:
            invoke(channel, "arithmetic", b'{"expression":"1+1"}', token=made)
        assert code_of(caught.value) == "E3204"
    refused = cli("token", "delegate", BOT, "--token", made, "--scopes", "tools:read", state=mesh.state, check=False)
    assert (refused.returncode, "E3213" in refused.stderr) == (4, True)
    shown = cli("token", "inspect", made, "--offline", state=mesh.state).stderr
    assert BOT in shown
    narrow = cli(
        "token", "narrow", "echo", "--token", made, "--scopes", "tools:call", "--raw", state=mesh.state
    ).stdout.strip()
    with mesh.edge_channel() as channel:
        assert outcome(channel, narrow) == ACCEPTED


def test_an_unknown_agent_gets_nothing(mesh: Mesh) -> None:
    request = pb.DelegateTokenRequest(agent="did:web:example.com:agents:bot", part=pb.Part())
    with mesh.edge_channel() as channel, pytest.raises(grpc.RpcError) as caught:
        metadata = [("authorization", f"Bearer {mesh.token()}")]
        rpc.TokenServiceStub(channel).DelegateToken(request, metadata=metadata, timeout=10)  # type: ignore[arg-type]
    assert code_of(caught.value) == "E3207"


def test_an_exchange_needs_no_token_of_the_mesh_and_everything_else_does(mesh: Mesh, signer: Any) -> None:
    with mesh.edge_channel() as channel:
        stub = rpc.TokenServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ExchangeToken(
                pb.ExchangeTokenRequest(subject_token=signer.mint(iss="https://elsewhere.example")), timeout=10
            )
        # The answer of authz itself, which trusts no issuer here.
        assert code_of(caught.value) == "E3208"
        part = pb.Part(tools=[token_pb.ToolGrant(tool="echo")])
        for call, request in (
            (stub.DelegateToken, pb.DelegateTokenRequest(agent=BOT, part=part)),
            (stub.NarrowToken, pb.NarrowTokenRequest(part=part)),
            (stub.RevokeToken, pb.RevokeTokenRequest(token_id="x")),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call(request, timeout=10)  # type: ignore[arg-type]
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
