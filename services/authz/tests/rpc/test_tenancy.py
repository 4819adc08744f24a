"""A token of a tenant reaches the tokens, revocations and decisions of its tenant alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc.aio
import jwt
import pytest
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as policy_rpc
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.authz.tests.conftest import ALICE, call_in_question

BOB = "did:web:toolmesh.local:users:bob"
OURS, THEIRS = "acme", "globex"
SCOPES = ["authz:admin", "authz:evaluate", "policies:read", "policies:admin"]
TOKEN_REVOKED = "E3212"


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


@dataclass
class Tenants:
    """Clients with tokens of two tenants."""

    mesh: Any

    async def mint(self, tenant: str, subject: str = ALICE, scopes: Any = SCOPES) -> Any:
        return await self.mesh.mint(tenant=tenant, subject=subject, scopes=scopes)

    async def metadata(self, tenant: str, **changes: Any) -> Any:
        return (("authorization", f"Bearer {(await self.mint(tenant, **changes)).token}"),)

    async def revoke(self, tenant: str, **target: str) -> pb.Revocation:
        stub = rpc.TokenServiceStub(self.mesh.channel("edge"))
        call = stub.RevokeToken(pb.RevokeTokenRequest(**target), metadata=await self.metadata(tenant, subject=BOB))
        return (await call).revocation  # type: ignore[no-any-return]

    async def revocations(self, tenant: str, **page: Any) -> pb.ListRevocationsResponse:
        stub = rpc.TokenServiceStub(self.mesh.channel("edge"))
        call = stub.ListRevocations(pb.ListRevocationsRequest(**page), metadata=await self.metadata(tenant))
        return await call  # type: ignore[no-any-return]

    async def explain(self, name: str, tenant: str, **changes: Any) -> Any:
        stub = policy_rpc.PolicyServiceStub(self.mesh.channel("edge"))
        request = policy_pb.ExplainDecisionRequest(name=name)
        return await stub.ExplainDecision(request, metadata=await self.metadata(tenant, **changes))

    async def code(self, token: Any) -> str:
        return str((await self.mesh.introspect(token.token)).error_code)


@pytest.fixture
def tenants(mesh: Any) -> Tenants:
    return Tenants(mesh)


async def test_an_administrator_revokes_only_tokens_of_its_tenant(tenants: Tenants) -> None:
    ours, theirs, nobodys = [await tenants.mint(tenant) for tenant in (OURS, THEIRS, "")]
    for other in (theirs, nobodys):
        error = await refusal(tenants.revoke(OURS, token_id=other.claims.token_id))
        assert error.reason is Reason.NOT_FOUND
    assert (await tenants.revoke(OURS, token_id=ours.claims.token_id)).tenant == OURS
    assert [await tenants.code(token) for token in (ours, theirs, nobodys)] == [TOKEN_REVOKED, "", ""]
    await tenants.revoke("", token_id=theirs.claims.token_id)
    assert await tenants.code(theirs) == TOKEN_REVOKED


async def test_a_subject_loses_its_tokens_only_in_the_administrators_tenant(tenants: Tenants) -> None:
    ours, theirs = [await tenants.mint(tenant) for tenant in (OURS, THEIRS)]
    await tenants.revoke(OURS, subject=ALICE)
    assert [await tenants.code(token) for token in (ours, theirs)] == [TOKEN_REVOKED, ""]
    await tenants.revoke("", subject=ALICE)
    assert await tenants.code(theirs) == TOKEN_REVOKED


async def test_a_tenant_revokes_no_key(tenants: Tenants) -> None:
    kid = jwt.get_unverified_header((await tenants.mint(OURS)).token)["kid"]
    assert (await refusal(tenants.revoke(OURS, key_id=kid))).reason is Reason.AUTHORITY_EXCEEDED


async def test_a_tenant_without_the_scope_still_revokes_its_own_token(tenants: Tenants) -> None:
    own = await tenants.mint(OURS, scopes=["tools:call"])
    stub = rpc.TokenServiceStub(tenants.mesh.channel("edge"))
    request = pb.RevokeTokenRequest(token_id=own.claims.token_id)
    await stub.RevokeToken(request, metadata=(("authorization", f"Bearer {own.token}"),))
    assert await tenants.code(own) == TOKEN_REVOKED


async def test_a_list_of_revocations_shows_those_of_the_callers_tenant(tenants: Tenants) -> None:
    for tenant in (OURS, THEIRS):
        for _ in range(2):
            await tenants.revoke(tenant, token_id=(await tenants.mint(tenant)).claims.token_id)
    assert {one.tenant for one in (await tenants.revocations(OURS)).revocations} == {OURS}
    assert len((await tenants.revocations("")).revocations) == 4
    page = await tenants.revocations(OURS, page_size=1)
    following = await tenants.revocations(OURS, page_size=1, page_token=page.next_page_token)
    assert [one.tenant for one in following.revocations] == [OURS]
    error = await refusal(tenants.revocations(THEIRS, page_size=1, page_token=page.next_page_token))
    assert error.reason is Reason.PAGE_TOKEN_INVALID


@pytest.mark.parametrize(
    ("tenant", "subject", "scopes", "readable"),
    [
        (OURS, ALICE, ["tools:call"], True),
        (OURS, BOB, ["tools:call"], False),
        (OURS, BOB, ["policies:read"], True),
        (THEIRS, ALICE, ["tools:call"], False),
        (THEIRS, BOB, ["policies:read"], False),
        ("", ALICE, ["tools:call"], False),
        ("", BOB, ["policies:read"], True),
    ],
)
async def test_a_decision_is_explained_within_its_tenant(
    tenants: Tenants, tenant: str, subject: str, scopes: list[str], readable: bool
) -> None:
    decision = await tenants.mesh.check((await tenants.mint(OURS, scopes=["tools:call"])).token)
    call = tenants.explain(decision.name, tenant, subject=subject, scopes=scopes)
    if readable:
        assert (await call).decision.name == decision.name
    else:
        assert (await refusal(call)).reason is Reason.NOT_FOUND


@pytest.mark.parametrize(("about", "refused"), [("", False), (OURS, False), (THEIRS, True)])
async def test_a_tenant_evaluates_policy_only_for_its_own_subjects(tenants: Tenants, about: str, refused: bool) -> None:
    subject = authz_pb.SubjectFacts(subject=BOB, kind=authz_pb.PRINCIPAL_KIND_USER, tenant=about)
    request = authz_pb.CheckRequest(call=authz_pb.CallFacts(**call_in_question()), subject=subject)
    call = tenants.mesh.stub("gateway").Check(request, metadata=await tenants.metadata(OURS))
    if refused:
        assert (await refusal(call)).reason is Reason.AUTHORITY_EXCEEDED
    else:
        name = (await call).decision.name
        assert (await refusal(tenants.explain(name, THEIRS))).reason is Reason.NOT_FOUND
        assert (await tenants.explain(name, OURS)).decision.name == name


async def test_the_policy_set_of_all_tenants_is_not_a_tenants(tenants: Tenants) -> None:
    stub = policy_rpc.PolicyServiceStub(tenants.mesh.channel("edge"))
    for tenant, refused in ((OURS, True), ("", False)):
        call = stub.ListPolicySets(policy_pb.ListPolicySetsRequest(), metadata=await tenants.metadata(tenant))
        if refused:
            assert (await refusal(call)).reason is Reason.AUTHORITY_EXCEEDED
        else:
            assert (await call).policy_sets
