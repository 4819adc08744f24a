"""Tenants never meet: every RPC of every service, called by another tenant's token with every scope.

The walk follows the policy rows. An RPC whose row admits tenants needs an entry in
`tests/harness/tenancy/tenant_requests.py`, which says how another tenant would ask for what is not its own; without the
entry its test fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1.approval_service_pb2 import WatchTicketsResponse
from toolmesh.audit.v1.audit_service_pb2 import WatchRecordsResponse
from toolmesh.registry.v1.registry_service_pb2 import WatchToolsResponse

from libs.common.auth.peers import ORCHESTRATOR
from libs.common.errors import Reason
from libs.common.rpc.policy import Tenancy
from tests.harness.executors.announcing import announced_executor
from tests.harness.mesh import Mesh
from tests.harness.stores import wait_until
from tests.harness.tenancy.rpcs import Answer, Rpc, call, rpcs
from tests.harness.tenancy.tenant_requests import NAMED, OPEN, OWN, SHARED
from tests.harness.tenancy.tenants import Channels, Owner, Tenant

# What another tenant's things are answered with: they do not exist, or are not the caller's.
REFUSALS = {Reason.NOT_FOUND, Reason.INVOCATION_NOT_FOUND, Reason.PERMISSION_DENIED, Reason.AUTHORITY_EXCEEDED}
# What the owner must not meet, or the refusal of others would prove nothing. Its own state may still refuse a verb.
UNREACHED = {*REFUSALS, Reason.INVALID_REQUEST, Reason.PEER_NOT_ALLOWED, Reason.SCOPE_MISSING}

# Counts raters, so each call changes the answer.
COUNTING = {"TrustService.RateTool"}
# RPCs whose answer shows the owner something of its own, so that a stranger's answer without it means something.
SHOWS_OWN = {
    "PolicyService.ExplainDecision",
    "TokenService.DelegateToken",
    "TokenService.NarrowToken",
    "TokenService.RevokeToken",
    "TokenService.ListRevocations",
    "InvocationService.GetInvocation",
    "InvocationService.ListInvocations",
    "InvocationService.ListCallbackDeliveries",
    "InvocationService.RedeliverCallback",
    "KeyService.GetKey",
    "KeyService.ListKeys",
    "ApprovalService.GetTicket",
    "ApprovalService.ListTickets",
    "AuditService.GetRecord",
    "AuditService.QueryRecords",
    "AuditService.WatchRecords",
    "UsageService.ListTopUsage",
}
# No tool of this mesh can be previewed, and no server is connected to it.
REFUSED_TO_ALL = {
    "ExecutorService.PreviewInvocation": Reason.FAILED_PRECONDITION,
    "ExecutorService.WatchResources": Reason.TOOL_NOT_FOUND,
}
USAGE = "UsageService."
EVERY_RPC = {rpc.name: rpc for rpc in rpcs()}


def with_tenancy(*tenancies: Tenancy | None) -> list[Any]:
    return [pytest.param(rpc, id=rpc.name) for rpc in EVERY_RPC.values() if rpc.row.tenancy in tenancies]


def peer_for(rpc: Rpc) -> str:
    """Return the peer that calls for callers: a client inside the mesh, or a service where only those may."""
    if ORCHESTRATOR in rpc.row.allow or rpc.row.tenancy is not Tenancy.OWN:
        return ORCHESTRATOR
    return "gateway" if "gateway" in rpc.row.allow else min(rpc.row.allow)


def ask(rpc: Rpc, request: Message, tenant: Tenant, **options: Any) -> Answer:
    return call(tenant.channels.to(rpc.service, peer_for(rpc)), rpc, request, tenant.token, **options)


def ask_all(rpc: Rpc, request: Message, tenant: Tenant) -> Answer:
    """Ask, and read a stream that stays open until it brings a record which the tenant makes now. The log is in order:
    older records that it shows come before."""
    if rpc.row.deadline is not None:
        return ask(rpc, request, tenant)
    last = tenant.invoke().invocation_id

    def is_last(message: Any) -> bool:
        if isinstance(message, WatchTicketsResponse):
            return bool(message.synced)
        return isinstance(message, WatchRecordsResponse) and message.record.record.invocation_id == last

    return ask(rpc, request, tenant, is_last=is_last)


def marks_in(answer: Answer, owner: Owner) -> list[bytes]:
    """Return everything of the owner that an answer shows."""
    content = b"".join(message.SerializeToString() for message in answer.messages)
    return [mark for mark in owner.marks if mark in content]


def calls_in(answer: Answer) -> int:
    """Return the sum of all numbers of calls and callers in an answer."""
    return sum(number for message in answer.messages for number in counts(message))


def counts(message: Any) -> Iterator[int]:
    """Yield every number of calls or callers in an answer."""
    for field, value in message.ListFields():
        if field.name in ("calls", "distinct_callers"):
            yield value
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from counts(part)


@pytest.fixture(scope="module")
def channels(mesh: Mesh) -> Iterator[Channels]:
    with ExitStack() as stack, announced_executor(mesh):
        yield Channels(mesh, stack)


@pytest.fixture(scope="module")
def owner(channels: Channels) -> Iterator[Owner]:
    owner = Owner(channels)
    yield owner
    owner.disable_tools()


@pytest.fixture
def stranger(channels: Channels) -> Tenant:
    """A tenant that nothing in the mesh belongs to."""
    return Tenant(channels)


@pytest.mark.parametrize("rpc", with_tenancy(Tenancy.OWN))
def test_another_tenant_reaches_nothing_of_the_owner(rpc: Rpc, owner: Owner, stranger: Tenant) -> None:
    request = rpc.request(**OWN[rpc.name](owner))
    theirs = ask_all(rpc, request, stranger)
    assert marks_in(theirs, owner) == []
    if rpc.name in NAMED:
        assert theirs.reason in REFUSALS
    else:
        assert theirs.reason is REFUSED_TO_ALL.get(rpc.name)
    # What is refused to others is not refused to the owner, and what they are not shown is there.
    assert ask_all(rpc, request, owner).reason not in UNREACHED
    if rpc.name in SHOWS_OWN:
        wait_until(lambda: marks_in(ask_all(rpc, request, owner), owner), f"something of the owner in {rpc.name}")


@pytest.mark.parametrize("rpc", [rpc for rpc in with_tenancy(Tenancy.OWN) if str(rpc.id).startswith(USAGE)])
def test_usage_counts_no_call_of_another_tenant(rpc: Rpc, owner: Owner, stranger: Tenant) -> None:
    request = rpc.request(**OWN[rpc.name](owner))
    wait_until(lambda: calls_in(ask(rpc, request, owner)), "the count of the owner's calls")
    assert calls_in(ask(rpc, request, stranger)) == 0


def test_another_tenants_idempotency_key_is_another_key(owner: Owner, stranger: Tenant) -> None:
    first, again = stranger.invoke(**owner.call), owner.invoke(**owner.call)
    assert (first.replayed, again.replayed) == (False, True)


@pytest.mark.parametrize("rpc", with_tenancy(Tenancy.SHARED))
def test_a_shared_answer_is_the_same_for_every_tenant(rpc: Rpc, owner: Owner, stranger: Tenant) -> None:
    request = rpc.request(**SHARED[rpc.name](owner))

    def same() -> bool:
        theirs, mine = (ask(rpc, request, tenant, is_last=ends_snapshot) for tenant in (stranger, owner))
        assert (theirs.reason, mine.reason) == (None, None)
        return rpc.name in COUNTING or comparable(theirs) == comparable(mine)

    # The log and its checkpoints grow while both are asked.
    wait_until(same, f"the same answer of {rpc.name}", 20)


@pytest.mark.parametrize("rpc", with_tenancy(Tenancy.MESH_WIDE, None))
def test_what_concerns_all_tenants_is_refused_to_each(rpc: Rpc, owner: Owner, stranger: Tenant) -> None:
    for tenant in (owner, stranger):
        assert ask(rpc, rpc.request(), tenant).reason is Reason.AUTHORITY_EXCEEDED


@pytest.mark.parametrize("rpc", with_tenancy(Tenancy.NO_CALLER))
def test_a_token_opens_no_rpc_that_has_no_caller(rpc: Rpc, owner: Owner, stranger: Tenant) -> None:
    entry, reason = OPEN.get(rpc.name, (lambda owner: {}, Reason.PEER_NOT_ALLOWED))
    answer = ask(rpc, rpc.request(**entry(owner)), stranger)
    assert answer.reason is reason
    assert marks_in(answer, owner) == []


def test_the_tables_name_exactly_the_rpcs_of_their_tenancy() -> None:
    """A new RPC fails here until its row says what a tenant may see and its entry says how that is tried."""
    for table, tenancy in ((OWN, Tenancy.OWN), (SHARED, Tenancy.SHARED)):
        assert set(table) == {name for name, rpc in EVERY_RPC.items() if rpc.row.tenancy is tenancy}
    assert not [name for name, rpc in EVERY_RPC.items() if rpc.row.tenancy is None]


def ends_snapshot(message: Any) -> bool:
    """Return whether a message of a watch is the last of its snapshot. What follows depends on the moment."""
    return isinstance(message, WatchToolsResponse) and message.HasField("snapshot_complete")


def comparable(answer: Answer) -> list[Message]:
    return [without_moment(message) for message in answer.messages]


def without_moment(message: Any) -> Any:
    """Return a copy without what differs from one call to the next: times, the id of a surface, and decaying scores."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field, value in copy.ListFields():
        if field.name == "surface_id" or field.message_type is Timestamp.DESCRIPTOR:
            copy.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_DOUBLE and not field.is_repeated:
            setattr(copy, field.name, round(value, 3))
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.message_type.GetOptions().map_entry:
            parts = [without_moment(part) for part in (value if field.is_repeated else [value])]
            copy.ClearField(field.name)
            if field.is_repeated:
                getattr(copy, field.name).extend(parts)
            else:
                getattr(copy, field.name).CopyFrom(parts[0])
    return copy
