"""BatchCheck, FilterTools and checks for other subjects, over gRPC."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant

from libs.common.errors import Reason
from libs.common.rpc.status import from_rpc_error
from services.authz.tests.conftest import Mesh, call_in_question

ECHO_ONLY = [ToolGrant(tool="core.echo")]
OTHER = {"tool_version": "tools/core.other/versions/1.0.0"}
WRITE = {"mutation_class": "write_irreversible"}


def facts(**changes: Any) -> pb.CallFacts:
    return pb.CallFacts(**call_in_question(**changes))


async def held(mesh: Mesh, **token: Any) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {(await mesh.mint(**token)).token}"),)


async def test_many_calls_are_decided_at_once(mesh: Mesh) -> None:
    request = pb.BatchCheckRequest(calls=[facts(), facts(**OTHER), facts(**WRITE)])
    metadata = await held(mesh, tools=ECHO_ONLY)
    decisions = (await mesh.stub("gateway").BatchCheck(request, metadata=metadata)).decisions
    assert [decision.WhichOneof("outcome") for decision in decisions] == ["allow", "deny", "needs_approval"]


@pytest.mark.parametrize("peer", ["registry", "executor", "gateway"])
async def test_registry_executor_and_gateway_may_filter_tools(mesh: Mesh, peer: str) -> None:
    request = pb.FilterToolsRequest(tools=[facts(), facts(**OTHER), facts(**WRITE)])
    answer = await mesh.stub(peer).FilterTools(request, metadata=await held(mesh, tools=ECHO_ONLY))
    assert answer.tools == [pb.USABILITY_ALLOWED, pb.USABILITY_DENIED, pb.USABILITY_NEEDS_APPROVAL]
    assert answer.policy_set_version


@pytest.mark.parametrize("peer", ["audit", "edge", "operator"])
async def test_other_peers_may_not_batch_check(mesh: Mesh, peer: str) -> None:
    metadata = await held(mesh)
    for ask in (
        mesh.stub(peer).BatchCheck(pb.BatchCheckRequest(calls=[facts()]), metadata=metadata),
        mesh.stub(peer).FilterTools(pb.FilterToolsRequest(tools=[facts()]), metadata=metadata),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("calls", [[], [facts()] * 101])
async def test_a_batch_has_its_bounds(mesh: Mesh, calls: list[pb.CallFacts]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mesh.stub("gateway").BatchCheck(pb.BatchCheckRequest(calls=calls), metadata=await held(mesh))
    assert from_rpc_error(caught.value).reason is Reason.INVALID_REQUEST


async def test_a_check_for_another_subject_needs_the_evaluate_scope(mesh: Mesh) -> None:
    subject = pb.SubjectFacts(subject="did:web:b", kind=pb.PRINCIPAL_KIND_USER, trust_level=60)
    request = pb.CheckRequest(call=facts(mutation_class="write_reversible"), subject=subject)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mesh.stub("gateway").Check(request, metadata=await held(mesh))
    assert from_rpc_error(caught.value).reason is Reason.SCOPE_MISSING
    metadata = await held(mesh, tools=[], scopes=["authz:evaluate"])
    decision = (await mesh.stub("gateway").Check(request, metadata=metadata)).decision
    assert (decision.WhichOneof("outcome"), decision.cacheable) == ("allow", False)
    subject.trust_level = 10
    asked = pb.CheckRequest(call=request.call, subject=subject)
    decision = (await mesh.stub("gateway").Check(asked, metadata=metadata)).decision
    assert decision.WhichOneof("outcome") == "needs_approval"
