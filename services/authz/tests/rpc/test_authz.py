"""The RPCs over real mutual TLS, with a real database."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import jwt
import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant
from toolmesh.common.v1 import error_reason_pb2

from libs.authz_client.jwks import jwks_from
from libs.common.auth.tokens import TokenVerifier
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.authz.adapters.cedar.compiler import load_policies
from services.authz.adapters.keys import key_folder
from services.authz.convert.tokens import claims_message
from services.authz.tests.conftest import ALICE, FIRST, SECOND
from services.authz.tests.policy_texts import forbid, permit, write_policy_set
from services.authz.wiring import POLICIES

ISSUER = "https://authz.toolmesh.local"


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def verifier_of(mesh: Any) -> TokenVerifier:
    """A verifier as every other service has one: it fetches the keys over the wire."""
    return TokenVerifier(jwks_from(mesh.channel("registry")), issuer=ISSUER, audience="toolmesh", refetch_seconds=0)


def signed_claims(token: str) -> dict[str, Any]:
    return jwt.decode(token, options={"verify_signature": False})


def denial(decision: Any) -> str:
    assert decision.WhichOneof("outcome") == "deny"
    return error_reason_pb2.ErrorReason.Name(decision.deny.reason).removeprefix("ERROR_REASON_")


async def test_a_minted_token_is_accepted_by_any_service_that_fetches_the_keys(mesh: Any) -> None:
    grants = [ToolGrant(tool="acme.*", version_constraint="^1.2")]
    minted = await mesh.mint(tools=grants, scopes=["a:b", "c"], tenant="acme", groups=["ops"], trust_level=70)
    identity = await verifier_of(mesh).verify(minted.token)
    assert (identity.subject, identity.tier, identity.tenant, identity.trust_level) == (ALICE, "user", "acme", 70)
    assert (identity.scopes, identity.groups) == (frozenset({"a:b", "c"}), ("ops",))
    assert [(grant.tool, grant.version_constraint) for grant in identity.tools] == [("acme.*", "^1.2")]
    assert identity.token_id == minted.claims.token_id


async def test_the_claims_of_the_response_are_the_signed_claims(mesh: Any) -> None:
    minted = await mesh.mint(audiences=["toolmesh", "elsewhere"], lifetime=Duration(seconds=120), groups=["g"])
    assert minted.claims == claims_message(signed_claims(minted.token))
    assert minted.claims.expire_time.seconds - minted.claims.issue_time.seconds == 120
    assert (await mesh.introspect(minted.token)).claims == minted.claims


async def test_a_grant_that_cannot_be_issued_is_an_invalid_request(mesh: Any) -> None:
    refused: list[dict[str, Any]] = [
        {"tools": [], "scopes": []},
        {"lifetime": Duration(seconds=86_401)},
        {"lifetime": Duration(seconds=315_576_000_000)},
        {"lifetime": Duration(seconds=2**63 - 1)},
        {"lifetime": Duration()},
        {"tools": [ToolGrant(tool="echo", version_constraint="newest")]},
        {"tools": [ToolGrant(tool="Not a tool")]},
        {"subject": "alice"},
    ]
    for changes in refused:
        error = await refusal(mesh.mint(**changes))
        assert error.reason is Reason.INVALID_REQUEST
        assert error.violations


async def test_only_the_operator_may_mint(mesh: Any) -> None:
    token = (await mesh.mint()).token
    request = pb.IssueTokenRequest(subject=ALICE, scopes=["a"])
    for peer in ("registry", "authz", "executor", "approval", "audit", "gateway", "edge", "orchestrator"):
        call = mesh.stub(peer).IssueToken(request, metadata=(("authorization", f"Bearer {token}"),))
        assert (await refusal(call)).reason is Reason.PEER_NOT_ALLOWED


async def test_bad_tokens_are_inactive_with_the_code_that_a_call_would_meet(mesh: Any, signer: Any) -> None:
    good = (await mesh.mint()).token
    header, payload, signature = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    richer = base64.urlsafe_b64encode(json.dumps({**claims, "trust": 100}).encode()).rstrip(b"=").decode()
    unsigned = jwt.encode(claims, "", "none", {"kid": jwt.get_unverified_header(good)["kid"]})
    impostor = jwt.encode(claims, signer.key, "RS256", {"kid": jwt.get_unverified_header(good)["kid"]})
    elsewhere = (await mesh.mint(audiences=["elsewhere"])).token
    bad = {
        f"{header}.{richer}.{signature}": Reason.TOKEN_SIGNATURE_INVALID,
        unsigned: Reason.TOKEN_SIGNATURE_INVALID,
        impostor: Reason.TOKEN_SIGNATURE_INVALID,
        signer.mint(): Reason.TOKEN_SIGNATURE_INVALID,
        elsewhere: Reason.TOKEN_AUDIENCE_INVALID,
        "nonsense": Reason.TOKEN_MALFORMED,
        "a.b.c": Reason.TOKEN_MALFORMED,
        "ä.😀.\x00": Reason.TOKEN_MALFORMED,
        base64.urlsafe_b64encode(b"[" * 10_000).decode() + ".e30.e30": Reason.TOKEN_MALFORMED,
    }
    for token, reason in bad.items():
        found = await mesh.introspect(token)
        assert (found.active, found.error_code) == (False, f"E{reason.value}")
        assert not found.HasField("claims")
    assert (await mesh.introspect(good)).active


async def test_an_expired_token_is_inactive_and_opens_nothing(mesh: Any) -> None:
    # The issuer's clock stands an hour behind the machine's, so that what it mints for a minute is long over.
    mesh.clock.advance(-3600)
    old = (await mesh.mint(lifetime=Duration(seconds=60))).token
    found = await mesh.introspect(old)
    assert (found.active, found.error_code) == (False, f"E{Reason.TOKEN_EXPIRED.value}")
    assert (await refusal(mesh.check(old))).reason is Reason.TOKEN_EXPIRED


async def test_keys_rotate_without_a_restart(
    mesh: Any, pems: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock of the issuer may not run ahead of the verifiers' any further.
    monkeypatch.setattr(key_folder, "PUBLISH_AHEAD", 1.0)
    verifier = verifier_of(mesh)
    old = (await mesh.mint()).token
    await verifier.verify(old)
    (mesh.folder / SECOND).write_bytes(pems[1])
    mesh.clock.advance(1)
    early = (await mesh.mint()).token
    assert jwt.get_unverified_header(early)["kid"] == jwt.get_unverified_header(old)["kid"]
    mesh.clock.advance(1)
    new = (await mesh.mint()).token
    assert jwt.get_unverified_header(new)["kid"] != jwt.get_unverified_header(old)["kid"]
    for token in (old, new):
        assert (await mesh.introspect(token)).active
        assert (await verifier.verify(token)).subject == ALICE
        assert (await mesh.check(token)).HasField("allow")


async def test_a_key_that_is_taken_away_takes_its_tokens_with_it(mesh: Any, pems: tuple[bytes, ...]) -> None:
    old = (await mesh.mint()).token
    assert (await mesh.check(old)).HasField("allow")
    (mesh.folder / SECOND).write_bytes(pems[1])
    (mesh.folder / FIRST).unlink()
    mesh.clock.advance(1)
    found = await mesh.introspect(old)
    assert (found.active, found.error_code) == (False, f"E{Reason.TOKEN_SIGNATURE_INVALID.value}")
    assert (await refusal(mesh.check(old))).reason is Reason.TOKEN_SIGNATURE_INVALID
    with pytest.raises(MeshError) as caught:
        await verifier_of(mesh).verify(old)
    assert caught.value.reason is Reason.TOKEN_SIGNATURE_INVALID
    assert (await mesh.check((await mesh.mint()).token)).HasField("allow")


async def test_every_peer_reads_the_public_keys_and_only_those(mesh: Any) -> None:
    for peer in ("edge", "orchestrator", "operator", "gateway"):
        keys = json.loads((await mesh.stub(peer).GetJwks(pb.GetJwksRequest())).jwks)["keys"]
        assert [set(key) for key in keys] == [{"kty", "n", "e", "kid", "alg", "use"}]


async def test_a_check_needs_the_callers_token(mesh: Any) -> None:
    token = (await mesh.mint()).token
    for peer in ("executor", "gateway"):
        assert (await refusal(mesh.check("", peer))).reason is Reason.UNAUTHENTICATED
        assert (await refusal(mesh.check("nonsense", peer))).reason is Reason.TOKEN_MALFORMED
        assert (await mesh.check(token, peer)).HasField("allow")


async def test_other_peers_may_not_check_even_with_a_token(mesh: Any) -> None:
    token = (await mesh.mint()).token
    for peer in ("operator", "edge", "orchestrator", "registry", "approval", "audit"):
        assert (await refusal(mesh.check(token, peer))).reason is Reason.PEER_NOT_ALLOWED


async def test_an_allow_carries_all_that_the_evidence_needs(mesh: Any) -> None:
    minted = await mesh.mint()
    decision = await mesh.check(minted.token)
    assert decision.HasField("allow")
    assert decision.name.startswith("decisions/")
    assert list(decision.determining_policies) == ["covered-calls-may-run", "reading-runs-free"]
    assert len(decision.reasons) == 2
    assert decision.policy_set_version == load_policies(POLICIES).version
    assert decision.cacheable
    assert decision.expire_time.seconds - decision.decide_time.seconds == 60


async def test_a_decision_ends_with_the_token(mesh: Any) -> None:
    minted = await mesh.mint(lifetime=Duration(seconds=30))
    assert (await mesh.check(minted.token)).expire_time == minted.claims.expire_time


async def test_a_token_that_does_not_cover_the_tool_or_version_is_denied(mesh: Any) -> None:
    token = (await mesh.mint(tools=[ToolGrant(tool="core.echo", version_constraint="^1.2")])).token
    for version_name in (
        "tools/core.echo/versions/1.1.0",
        "tools/core.echo/versions/2.0.0",
        "tools/acme.echo/versions/1.2.0",
        "tools/core.echoes/versions/1.2.0",
    ):
        decision = await mesh.check(token, tool_version=version_name)
        assert denial(decision) == "TOOL_NOT_IN_TOKEN"
        assert decision.cacheable
    assert (await mesh.check(token, tool_version="tools/core.echo/versions/1.2.0")).HasField("allow")


async def test_a_token_of_scopes_alone_covers_no_tool(mesh: Any) -> None:
    token = (await mesh.mint(tools=[], scopes=["tools:call"])).token
    assert denial(await mesh.check(token)) == "TOOL_NOT_IN_TOKEN"


async def test_missing_scopes_are_denied_and_named(mesh: Any) -> None:
    decision = await mesh.check((await mesh.mint()).token, required_scopes=["files:read", "tools:call"])
    assert denial(decision) == "SCOPE_MISSING"
    assert [(update.kind, update.value) for update in decision.suggested_updates] == [("scope", "files:read")]


async def test_an_irreversible_call_needs_a_person_and_is_never_reused(mesh: Any) -> None:
    token = (await mesh.mint(trust_level=100)).token
    decision = await mesh.check(token, mutation_class="write_irreversible")
    asked = decision.needs_approval
    assert (list(asked.approver_groups), asked.quorum) == (["approvers"], 1)
    assert asked.policy == "irreversible-writes-need-a-person"
    assert not decision.cacheable


@pytest.mark.parametrize(("environment", "outcome"), [("staging", "allow"), ("prod", "needs_approval")])
async def test_the_environment_of_the_process_decides(start: Any, environment: str, outcome: str) -> None:
    mesh = await start(TOOLMESH_ENVIRONMENT=environment)
    token = (await mesh.mint(trust_level=50)).token
    assert (await mesh.check(token, mutation_class="write_reversible")).WhichOneof("outcome") == outcome


async def test_an_erring_policy_denies(start: Callable[..., Any], tmp_path: Path) -> None:
    erring = forbid("erring", "principal.trust_level * 9223372036854775807 > 0")
    mesh = await start(policies=write_policy_set(tmp_path / "policies", permit("all"), erring))
    decision = await mesh.check((await mesh.mint(trust_level=60)).token)
    assert denial(decision) == "POLICY_ENGINE_ERROR"
    assert not decision.cacheable
    assert "trust_level" not in str(decision.reasons)


async def test_a_decision_that_read_the_session_is_not_reused(start: Callable[..., Any], tmp_path: Path) -> None:
    policies = write_policy_set(tmp_path / "policies", permit("all"), forbid("session", 'context.session_id == "bad"'))
    mesh = await start(policies=policies)
    token = (await mesh.mint()).token
    assert denial(await mesh.check(token, session_id="bad")) == "PERMISSION_DENIED"
    good = await mesh.check(token, session_id="good")
    assert (good.WhichOneof("outcome"), good.cacheable) == ("allow", False)
