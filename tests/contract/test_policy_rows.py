"""Every RPC has a row that says who may call it, how long it may take, and a comment that says what it promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import MethodDescriptor

from libs.common.auth.peers import EDGE, OPERATOR, ORCHESTRATOR, SERVICES
from libs.common.rpc.policy import ANY_PEER, PLATFORM, Tenancy
from services.registry.public_services import PUBLIC_SERVICES
from tests.harness.tenancy.rpcs import RPC_SERVICES, descriptors, policy, rpcs

KNOWN_PEERS = {ANY_PEER, EDGE, OPERATOR, ORCHESTRATOR, *SERVICES}


def methods() -> Iterator[tuple[str, MethodDescriptor]]:
    for rpc in rpcs():
        yield rpc.service, rpc.method


@pytest.mark.parametrize("service", RPC_SERVICES)
def test_rows_and_methods_are_the_same_set(service: str) -> None:
    served = [(each.full_name, method.name) for each in descriptors(service) for method in each.methods]
    assert set(policy(service)) == {f"/{full}/{name}" for full, name in served}


@pytest.mark.parametrize(("service", "method"), [pytest.param(s, m, id=m.full_name) for s, m in methods()])
def test_a_row_is_explicit(service: str, method: MethodDescriptor) -> None:
    row = policy(service)[f"/{method.containing_service.full_name}/{method.name}"]
    assert row.allow, "a row that allows no caller is a mistake"
    assert set(row.allow) <= KNOWN_PEERS
    streams = method.server_streaming
    assert (row.deadline is None) <= streams, "only a stream may stay open without a deadline"
    assert row.deadline is None or 0 < row.deadline <= 300


@pytest.mark.parametrize(("service", "method"), [pytest.param(s, m, id=m.full_name) for s, m in methods()])
def test_a_caller_of_the_edge_always_needs_a_token(service: str, method: MethodDescriptor) -> None:
    row = policy(service)[f"/{method.containing_service.full_name}/{method.name}"]
    outside = {EDGE, ORCHESTRATOR} & set(row.allow)
    if ANY_PEER in row.allow:
        # The public keys are public: without them no service could check a token.
        assert method.name == "GetJwks"
    else:
        # One RPC takes another issuer's token, in its body; its caller has none of the mesh yet.
        exchanges = method.full_name == "toolmesh.authz.v1.TokenService.ExchangeToken"
        assert {peer for peer in outside if not row.allow[peer].needs_caller} == (outside if exchanges else set())


@pytest.mark.parametrize(("service", "method"), [pytest.param(s, m, id=m.full_name) for s, m in methods()])
def test_a_row_declares_what_a_tenant_may_see(service: str, method: MethodDescriptor) -> None:
    row = policy(service)[f"/{method.containing_service.full_name}/{method.name}"]
    assert row.tenancy is not None, "declare the tenancy of the row, and how to ask in tests/harness/tenancy"
    without_caller = not any(access.needs_caller for access in row.allow.values())
    assert (row.tenancy is Tenancy.NO_CALLER) == without_caller


def test_of_the_methods_of_every_server_callers_reach_reflection_alone() -> None:
    for method, row in PLATFORM.items():
        if method.startswith("/grpc.reflection."):
            assert row.tenancy is Tenancy.SHARED
            assert row.allow[EDGE].needs_caller
        else:
            assert row.tenancy is Tenancy.NO_CALLER


def test_reflection_describes_exactly_the_services_that_callers_reach() -> None:
    reached = {rpc.method.containing_service.full_name for rpc in rpcs() if EDGE in rpc.row.allow}
    assert set(PUBLIC_SERVICES) == reached


@pytest.mark.parametrize("service", RPC_SERVICES)
def test_every_rpc_says_who_may_call_it_and_what_it_promises(repository: Path, service: str) -> None:
    for descriptor in descriptors(service):
        text = (repository / "proto" / descriptor.file.name).read_text()
        for name in (method.name for method in descriptor.methods):
            match = re.search(rf"((?:^  //[^\n]*\n)+)  rpc {name}\(", text, re.M)
            assert match is not None, f"{name} has no comment"
            assert "Callable" in match.group(1), f"{name} does not say who may call it"
