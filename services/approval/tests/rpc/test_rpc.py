"""The RPCs of a running approval service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import ticket_pb2 as tickets
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.settings import load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.approval.config import Settings
from services.approval.policy import POLICY
from services.approval.tests.drafts import request
from services.approval.wiring import build


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def create(stub: Any, **changes: Any) -> Any:
    return (await stub.CreateTicket(request(**changes))).ticket


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def test_a_ticket_has_the_fields_of_its_request(service: Any) -> None:
    asked = request()
    ticket = (await service.stub("executor").CreateTicket(asked)).ticket
    assert ticket.state == tickets.TICKET_STATE_PENDING
    for field in ("tool_version", "tool_digest", "arguments_digest", "redacted_arguments", "requester", "invocation"):
        assert getattr(ticket, field) == getattr(asked, field)
    for field in ("decision", "policy_set_version", "reason", "escalation_chain", "quorum"):
        assert getattr(ticket, field) == getattr(asked, field)
    start = Timestamp()
    start.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    assert ticket.create_time == start
    assert ticket.expire_time.ToDatetime() - ticket.create_time.ToDatetime() == timedelta(hours=1)
    assert not ticket.HasField("resolve_time")
    assert (await service.stub("executor").GetTicket(pb.GetTicketRequest(name=ticket.name))).ticket == ticket


async def test_unset_fields_of_a_ticket_have_the_defaults_of_the_contract(service: Any) -> None:
    ticket = await create(
        service.stub("executor"), quorum=0, redacted_arguments=b"", lifetime=Duration(seconds=604_800)
    )
    assert (ticket.quorum, ticket.redacted_arguments) == (1, b"{}")
    assert ticket.expire_time.seconds - ticket.create_time.seconds == 604_800


async def test_a_repeated_request_returns_its_ticket_and_another_call_is_refused(service: Any) -> None:
    stub = service.stub("executor")
    asked = request()
    first = (await stub.CreateTicket(asked)).ticket
    assert (await stub.CreateTicket(asked)).ticket == first
    other = request(request_id=asked.request_id, arguments_digest="sha256:other")
    assert (await refusal(stub.CreateTicket(other))).reason is Reason.ALREADY_EXISTS


async def test_concurrent_duplicate_requests_create_one_ticket(service: Any) -> None:
    stub = service.stub("executor")
    asked = request()
    answers = await asyncio.gather(*(stub.CreateTicket(asked, timeout=60) for _ in range(10)))
    assert len({a.ticket.name for a in answers}) == 1
    assert len((await stub.ListTickets(pb.ListTicketsRequest())).tickets) == 1


@pytest.mark.parametrize("arguments", [b"[]", b"{", b'{"a":1,"a":2}'])
async def test_ticket_arguments_must_be_a_strict_json_object(service: Any, arguments: bytes) -> None:
    error = await refusal(service.stub("executor").CreateTicket(request(redacted_arguments=arguments)))
    assert error.reason is Reason.INVALID_JSON


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"request_id": ""}, "request_id"),
        ({"escalation_chain": []}, "escalation_chain"),
        ({"requester": None}, "requester"),
        ({"quorum": 11}, "quorum"),
        ({"lifetime": Duration(seconds=604_801)}, "lifetime"),
        ({"lifetime": Duration()}, "lifetime"),
        ({"reason": "a\0b"}, "reason"),
    ],
)
async def test_a_request_that_breaks_the_contract_is_refused(service: Any, changes: Any, path: str) -> None:
    error = await refusal(service.stub("executor").CreateTicket(request(**changes)))
    assert error.reason is Reason.INVALID_REQUEST
    assert path in {v.path for v in error.violations}


async def test_an_overdue_ticket_reads_as_denied_in_every_rpc(service: Any) -> None:
    stub = service.stub("executor")
    pending = await create(stub)
    service.clock.advance(3600)
    denied = (await stub.GetTicket(pb.GetTicketRequest(name=pending.name))).ticket
    assert denied.state == tickets.TICKET_STATE_AUTO_DENIED
    assert denied.resolve_time == pending.expire_time
    assert denied.etag != pending.etag

    async def listed(state: Any) -> list[Any]:
        return list((await stub.ListTickets(pb.ListTicketsRequest(state=state))).tickets)

    assert await listed(tickets.TICKET_STATE_UNSPECIFIED) == [denied]
    assert await listed(tickets.TICKET_STATE_AUTO_DENIED) == [denied]
    assert await listed(tickets.TICKET_STATE_PENDING) == []
    error = await refusal(stub.CancelTicket(pb.CancelTicketRequest(name=pending.name)))
    assert error.reason is Reason.FAILED_PRECONDITION


async def test_a_canceled_ticket_stays_canceled(service: Any) -> None:
    stub = service.stub("operator")
    pending = await create(service.stub("executor"))
    service.clock.advance(60)
    canceled = (await stub.CancelTicket(pb.CancelTicketRequest(name=pending.name))).ticket
    assert canceled.state == tickets.TICKET_STATE_CANCELED
    assert canceled.resolve_time.seconds == pending.create_time.seconds + 60
    assert canceled.etag != pending.etag
    service.clock.advance(7200)
    assert (await stub.CancelTicket(pb.CancelTicketRequest(name=pending.name))).ticket == canceled
    assert (await stub.GetTicket(pb.GetTicketRequest(name=pending.name))).ticket == canceled


async def test_concurrent_cancels_agree(service: Any) -> None:
    stub = service.stub("executor")
    pending = await create(stub)
    cancel = pb.CancelTicketRequest(name=pending.name)
    answers = await asyncio.gather(*(stub.CancelTicket(cancel) for _ in range(8)))
    assert len({a.ticket.etag for a in answers}) == 1


@pytest.mark.parametrize("rpc_name", ["GetTicket", "CancelTicket"])
async def test_an_unknown_ticket_is_not_found(service: Any, rpc_name: str) -> None:
    message = getattr(pb, f"{rpc_name}Request")(name="tickets/none")
    assert (await refusal(getattr(service.stub("executor"), rpc_name)(message))).reason is Reason.NOT_FOUND


async def test_ticket_pages_are_newest_first_and_bound_to_their_query(service: Any) -> None:
    stub = service.stub("executor")
    made = []
    for _ in range(5):
        made.append((await create(stub)).name)
        service.clock.advance(1)
    seen, token = [], ""
    while True:
        page = await stub.ListTickets(pb.ListTicketsRequest(page_size=2, page_token=token))
        seen += [t.name for t in page.tickets]
        token = page.next_page_token
        if not token:
            break
        last = token
    assert seen == made[::-1]
    other = pb.ListTicketsRequest(page_token=last, state=tickets.TICKET_STATE_PENDING)
    assert (await refusal(stub.ListTickets(other))).reason is Reason.PAGE_TOKEN_INVALID
    error = await refusal(stub.ListTickets(pb.ListTicketsRequest(page_token="!!")))
    assert error.reason is Reason.PAGE_TOKEN_INVALID


@pytest.mark.parametrize("peer", ["edge", "gateway", "orchestrator"])
async def test_callers_read_with_the_scope_and_change_nothing(service: Any, signer: Any, peer: str) -> None:
    ticket = await create(service.stub("executor"))
    stub = service.stub(peer)
    get = pb.GetTicketRequest(name=ticket.name)
    assert (await refusal(stub.GetTicket(get))).reason is Reason.UNAUTHENTICATED
    error = await refusal(stub.GetTicket(get, metadata=bearer(signer.mint(scope="tools:call"))))
    assert error.reason is Reason.SCOPE_MISSING
    token = bearer(signer.mint(scope="approvals:read"))
    assert (await stub.GetTicket(get, metadata=token)).ticket == ticket
    assert len((await stub.ListTickets(pb.ListTicketsRequest(), metadata=token)).tickets) == 1
    cancel = stub.CancelTicket(pb.CancelTicketRequest(name=ticket.name), metadata=token)
    assert (await refusal(cancel)).reason is Reason.PEER_NOT_ALLOWED
    assert (await refusal(stub.CreateTicket(request(), metadata=token))).reason is Reason.PEER_NOT_ALLOWED


@pytest.mark.parametrize("peer", ["operator", "registry", "audit"])
async def test_only_the_executor_creates_tickets(service: Any, peer: str) -> None:
    assert (await refusal(service.stub(peer).CreateTicket(request()))).reason is Reason.PEER_NOT_ALLOWED


def test_every_approval_rpc_has_a_policy_row() -> None:
    described = pb.DESCRIPTOR.services_by_name["ApprovalService"]
    assert set(POLICY) == {f"/{described.full_name}/{method.name}" for method in described.methods}


async def test_replicas_on_one_database_agree(environment: dict[str, str], stub_to: Callable[[str, int], Any]) -> None:
    log = Log("approval", level="error", descriptor=2)
    replicas = [await build(load(Settings, environment), log, Tracing()) for _ in range(2)]
    # Started together, so that both find an empty schema.
    await asyncio.gather(*(replica.start() for replica in replicas))
    pairs = [stub_to("executor", replica.server.port) for replica in replicas]
    asked = request()
    answers = await asyncio.gather(*(stub.CreateTicket(asked) for stub, _ in pairs for _ in range(4)))
    assert len({a.ticket.name for a in answers}) == 1
    read = [await stub.GetTicket(pb.GetTicketRequest(name=answers[0].ticket.name)) for stub, _ in pairs]
    assert read[0] == read[1]
    for _, channel in pairs:
        await channel.close()
    for replica in replicas:
        await replica.stop()


async def test_a_tenants_token_reads_only_the_tickets_of_its_tenant(service: Any, signer: Any) -> None:
    executor, stub = service.stub("executor"), service.stub("edge")
    ours, theirs = [
        await create(executor, requester=caller_pb2.Caller(subject="did:web:example.com:alice", tenant=tenant))
        for tenant in ("acme", "globex")
    ]
    for tenant, visible in (("acme", [ours]), ("globex", [theirs]), ("", [ours, theirs])):
        token = bearer(signer.mint(scope="approvals:read", tenant=tenant))
        for state in (tickets.TICKET_STATE_UNSPECIFIED, tickets.TICKET_STATE_PENDING):
            page = await stub.ListTickets(pb.ListTicketsRequest(state=state), metadata=token)
            assert sorted(ticket.name for ticket in page.tickets) == sorted(ticket.name for ticket in visible)
        for ticket in (ours, theirs):
            call = stub.GetTicket(pb.GetTicketRequest(name=ticket.name), metadata=token)
            if ticket in visible:
                assert (await call).ticket == ticket
            else:
                assert (await refusal(call)).reason is Reason.NOT_FOUND


async def test_a_page_token_of_one_tenant_is_refused_for_another(service: Any, signer: Any) -> None:
    stub = service.stub("edge")
    for _ in range(2):
        await create(service.stub("executor"))
    ours, theirs = (bearer(signer.mint(scope="approvals:read", tenant=tenant)) for tenant in ("acme", "globex"))
    page = await stub.ListTickets(pb.ListTicketsRequest(page_size=1), metadata=ours)
    following = pb.ListTicketsRequest(page_size=1, page_token=page.next_page_token)
    assert (await refusal(stub.ListTickets(following, metadata=theirs))).reason is Reason.PAGE_TOKEN_INVALID
    assert len((await stub.ListTickets(following, metadata=ours)).tickets) == 1
