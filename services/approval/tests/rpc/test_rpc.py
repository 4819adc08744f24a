"""The RPCs of a running approval service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import ticket_pb2 as tickets
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from libs.common.rpc.stream_slots import StreamLimits
from libs.common.runtime.settings import load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.approval.config import Settings
from services.approval.policy import POLICY
from services.approval.tests.drafts import request
from services.approval.wiring import build

ALICE, AGENT, BOB, CAROL, ERIN = (f"did:web:example.com:{name}" for name in ("alice", "agent", "bob", "carol", "erin"))


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def succeeds(call: Any) -> bool:
    """Return whether a call succeeds, or its service does not know yet."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason is Reason.SERVICE_UNAVAILABLE
    return True


async def create(stub: Any, **changes: Any) -> Any:
    """Create a ticket for a call of its own."""
    digest = {"arguments_digest": f"sha256:{len(_made)}"}
    _made.append(None)
    return (await stub.CreateTicket(request(**digest | changes))).ticket


_made: list[None] = []


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def redemption(ticket: Any, use: str = "key-1", **changes: Any) -> pb.RedeemTicketRequest:
    fields = {
        "name": ticket.name,
        "requester": ticket.requester,
        "tool_version": ticket.tool_version,
        "tool_digest": ticket.tool_digest,
        "arguments_digest": ticket.arguments_digest,
        "policy_set_version": ticket.policy_set_version,
        "redemption_id": use,
        "invocation": "invocations/i-2",
    }
    return pb.RedeemTicketRequest(**{**fields, **changes})


class Approvers:
    """Makes the decisions of people, through the edge."""

    def __init__(self, service: Any, signer: Any) -> None:
        self.stub, self.signer = service.stub("edge"), signer

    def token(self, subject: str, groups: str = "leads", scope: str = "approvals:decide", **claims: Any) -> Any:
        return bearer(self.signer.mint(subject, scope=scope, groups=groups.split(), tenant="acme", **claims))

    def approve(self, ticket: Any, subject: str, groups: str = "leads", reason: str = "", **more: Any) -> Any:
        asked = pb.ApproveTicketRequest(name=ticket.name, reason=reason, etag=more.pop("etag", ""))
        return self.stub.ApproveTicket(asked, metadata=self.token(subject, groups, **more))

    def deny(self, ticket: Any, subject: str, groups: str = "leads") -> Any:
        asked = pb.DenyTicketRequest(name=ticket.name, reason="not today")
        return self.stub.DenyTicket(asked, metadata=self.token(subject, groups))


@pytest.fixture
def approvers(service: Any, signer: Any) -> Approvers:
    return Approvers(service, signer)


async def test_a_ticket_has_the_fields_of_its_request_and_one_call_has_one_open_ticket(service: Any) -> None:
    stub, asked = service.stub("executor"), request(preview=b'{"impact":"one mail"}')
    first = (await stub.CreateTicket(asked)).ticket
    assert first.state == tickets.TICKET_STATE_PENDING
    for field in ("tool_version", "tool_digest", "arguments_digest", "redacted_arguments", "requester", "invocation"):
        assert getattr(first, field) == getattr(asked, field)
    for field in ("decision", "policy_set_version", "reason", "escalation_chain", "quorum", "preview", "risk"):
        assert getattr(first, field) == getattr(asked, field)
    lifetime = first.expire_time.ToDatetime() - first.create_time.ToDatetime()
    assert lifetime == timedelta(hours=5)
    assert [step.kind for step in first.steps] == ["created"]
    # The same call again, as another request and with a renewed token, asks no one again.
    renewed = caller_pb2.Caller()
    renewed.CopyFrom(asked.requester)
    renewed.token_id = "t-renewed"
    answers = await asyncio.gather(*(stub.CreateTicket(request(requester=renewed)) for _ in range(8)))
    assert {answer.ticket.name for answer in answers} == {first.name}
    assert (await stub.CreateTicket(asked)).ticket == first
    other = request(request_id=asked.request_id, arguments_digest="sha256:other")
    assert (await refusal(stub.CreateTicket(other))).reason is Reason.ALREADY_EXISTS
    # After its end, the call asks anew.
    await service.age(first.name, 5 * 3600)
    again = (await stub.CreateTicket(request())).ticket
    assert again.name != first.name
    assert [act["event_class"] for act in await service.acts(first.name)][-1] == "ticket_closed"


async def test_a_request_that_breaks_the_contract_is_refused(service: Any) -> None:
    stub = service.stub("executor")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"request_id": ""}, "request_id"),
        ({"escalation_chain": []}, "escalation_chain"),
        ({"requester": None}, "requester"),
        ({"requester": caller_pb2.Caller(agent=AGENT)}, "requester.subject"),
        ({"quorum": 101}, "quorum"),
        ({"lifetime": Duration(seconds=604_801)}, "lifetime"),
        ({"lifetime": Duration()}, "lifetime"),
        ({"reason": "a\0b"}, "reason"),
        ({"policies": ["\0"]}, "policies[0]"),
    ]
    for changes, path in wrong:
        error = await refusal(stub.CreateTicket(request(**changes)))
        assert error.reason is Reason.INVALID_REQUEST
        assert path in {v.path for v in error.violations}
    for arguments in (b"[]", b"{", b'{"a":1,"a":2}', b'{"n":NaN}'):
        for field in ("redacted_arguments", "preview"):
            error = await refusal(stub.CreateTicket(request(**{field: arguments})))
            assert error.reason is Reason.INVALID_JSON


async def test_votes_follow_the_rules_and_are_recorded(service: Any, approvers: Approvers) -> None:
    ticket = await create(service.stub("executor"), reason_required=True)
    refused = [
        (approvers.approve(ticket, ALICE, "leads"), Reason.SELF_APPROVAL),
        (approvers.approve(ticket, AGENT, "leads"), Reason.SELF_APPROVAL),
        (approvers.approve(ticket, ERIN, "guests", "fine"), Reason.APPROVER_NOT_ELIGIBLE),
        # The second group is asked later.
        (approvers.approve(ticket, ERIN, "owners", "fine"), Reason.APPROVER_NOT_ELIGIBLE),
        (approvers.approve(ticket, BOB, "leads", scope="approvals:read"), Reason.SCOPE_MISSING),
        (approvers.approve(ticket, BOB, "leads"), Reason.INVALID_REQUEST),
        (approvers.approve(ticket, BOB, "leads", "fine", etag="0" * 32), Reason.ETAG_MISMATCH),
    ]
    for call, reason in refused:
        assert (await refusal(call)).reason is reason
    foreign = bearer(approvers.signer.mint(BOB, scope="approvals:decide", groups=["leads"], tenant="globex"))
    asked = pb.ApproveTicketRequest(name=ticket.name, reason="fine")
    assert (await refusal(approvers.stub.ApproveTicket(asked, metadata=foreign))).reason is Reason.NOT_FOUND
    voted = (await approvers.approve(ticket, BOB, "leads", "fine", etag=ticket.etag)).ticket
    assert voted.state == tickets.TICKET_STATE_PENDING
    assert (await approvers.approve(ticket, BOB, "leads", "fine")).ticket == voted
    await service.age(ticket.name, 3600)
    approved = (await approvers.approve(ticket, ERIN, "owners", "fine")).ticket
    assert approved.state == tickets.TICKET_STATE_APPROVED
    kinds = [step.kind for step in approved.steps]
    assert kinds == ["created", "vote_approved", "escalated", "vote_approved", "approved"]
    denied = (await approvers.deny(ticket, CAROL)).ticket
    assert denied.state == tickets.TICKET_STATE_DENIED
    # Approved after a denial.
    assert (await refusal(approvers.approve(ticket, CAROL, "leads", "fine"))).reason is Reason.TICKET_CLOSED
    acts = await service.acts(ticket.name)
    refusals = [act["act"]["reason"] for act in acts if act["event_class"] == "ticket_refused"]
    # The first four were sent at once.
    assert sorted(refusals[:4]) == ["APPROVER_NOT_ELIGIBLE"] * 2 + ["SELF_APPROVAL"] * 2
    assert refusals[4:] == ["TICKET_CLOSED"]
    votes = [act["caller"]["subject"] for act in acts if act["event_class"] == "ticket_voted"]
    assert votes == [BOB, ERIN, ERIN, CAROL]
    assert all(act["caller"]["tenant"] == "acme" for act in acts)


async def test_an_approvers_token_is_confirmed_by_authz(service: Any, approvers: Approvers) -> None:
    ticket = await create(service.stub("executor"), quorum=1)
    token = approvers.token(BOB)
    service.authz.inactive.add(token[0][1].removeprefix("Bearer "))
    asked = pb.ApproveTicketRequest(name=ticket.name)
    error = await refusal(approvers.stub.ApproveTicket(asked, metadata=token))
    assert error.reason is Reason.TOKEN_REVOKED
    assert (await approvers.approve(ticket, BOB)).ticket.state == tickets.TICKET_STATE_APPROVED


async def test_an_approval_is_redeemed_once_by_its_own_call(service: Any, approvers: Approvers) -> None:
    stub = service.stub("executor")
    ticket = await create(stub, quorum=1)
    assert (await refusal(stub.RedeemTicket(redemption(ticket)))).reason is Reason.APPROVAL_REQUIRED
    await approvers.approve(ticket, BOB)
    eve = caller_pb2.Caller(subject="did:web:example.com:eve", tenant="acme")
    mismatches: list[tuple[dict[str, Any], Reason]] = [
        ({"arguments_digest": "sha256:other"}, Reason.TICKET_ARGUMENTS_CHANGED),
        ({"tool_digest": "sha256:other"}, Reason.TICKET_TOOL_CHANGED),
        ({"tool_version": "tools/acme.send_email/versions/1.2.4"}, Reason.TICKET_TOOL_CHANGED),
        ({"policy_set_version": "v8"}, Reason.TICKET_POLICY_CHANGED),
        ({"requester": eve}, Reason.TICKET_CALLER_MISMATCH),
    ]
    for changes, reason in mismatches:
        for validate_only in (True, False):
            asked = redemption(ticket, validate_only=validate_only, **changes)
            assert (await refusal(stub.RedeemTicket(asked))).reason is reason
    valid = (await stub.RedeemTicket(redemption(ticket, validate_only=True))).ticket
    assert valid.state == tickets.TICKET_STATE_APPROVED
    uses = await asyncio.gather(
        *(stub.RedeemTicket(redemption(ticket, f"key-{index % 4}")) for index in range(8)), return_exceptions=True
    )
    redeemed = [use for use in uses if isinstance(use, pb.RedeemTicketResponse)]
    # Each key redeems twice: both attempts of one key succeed, all others fail.
    assert len(redeemed) == 2
    assert {use.ticket.state for use in redeemed} == {tickets.TICKET_STATE_REDEEMED}
    assert (await refusal(stub.RedeemTicket(redemption(ticket, "key-9")))).reason is Reason.TICKET_REDEEMED
    await service.age(ticket.name, 1800)
    error = await refusal(stub.RedeemTicket(redemption(ticket, redeemed[0].ticket.redeem_invocation)))
    assert error.reason is Reason.TICKET_REDEEMED
    refusals = [act for act in await service.acts(ticket.name) if act["event_class"] == "ticket_refused"]
    # Ten mismatches, six lost races, and the last two.
    assert len(refusals) == 18


async def test_approvals_end_by_denial_expiry_revocation_and_cancellation(service: Any, approvers: Approvers) -> None:
    stub = service.stub("executor")
    denied, expired, revoked, canceled, late, unfounded = [
        await create(stub, quorum=1, requester=caller_pb2.Caller(subject=ALICE, tenant="acme", token_id=f"t-{n}"))
        for n in range(6)
    ]
    await approvers.deny(denied, BOB)
    for ticket in (expired, revoked, canceled):
        await approvers.approve(ticket, BOB)
    await approvers.approve(unfounded, CAROL, jti="t-carol")
    await service.age(expired.name, 1800)
    await stub.CancelTicket(pb.CancelTicketRequest(name=canceled.name))
    await service.age(late.name, 5 * 3600)
    service.authz.invalidations.revoke(token_id="t-2")
    async with asyncio.timeout(30):
        while await succeeds(stub.RedeemTicket(redemption(revoked, validate_only=True))):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await stub.RedeemTicket(redemption(unfounded, validate_only=True))).ticket == (
        await stub.GetTicket(pb.GetTicketRequest(name=unfounded.name))
    ).ticket
    # An approval counts only as long as the token of its approver.
    service.authz.invalidations.revoke(token_id="t-carol")
    async with asyncio.timeout(30):
        while await succeeds(stub.RedeemTicket(redemption(unfounded, validate_only=True))):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    expected = [
        (unfounded, Reason.TICKET_APPROVER_REVOKED),
        (denied, Reason.APPROVAL_REJECTED),
        (expired, Reason.TICKET_EXPIRED),
        (revoked, Reason.TICKET_TOKEN_REVOKED),
        (canceled, Reason.TICKET_CLOSED),
        (late, Reason.APPROVAL_REJECTED),
    ]
    for ticket, reason in expected:
        assert (await refusal(stub.RedeemTicket(redemption(ticket)))).reason is reason
    states = {}
    for name in ("PENDING", "APPROVED", "DENIED", "AUTO_DENIED", "CANCELED", "EXPIRED"):
        page = await stub.ListTickets(pb.ListTicketsRequest(state=tickets.TicketState.Value(f"TICKET_STATE_{name}")))
        states[name] = [ticket.name for ticket in page.tickets]
    assert states == {
        "PENDING": [],
        "APPROVED": [],
        "DENIED": [denied.name],
        "AUTO_DENIED": [late.name],
        # What can never be used is closed, so that the call can ask again.
        "CANCELED": [unfounded.name, canceled.name, revoked.name],
        "EXPIRED": [expired.name],
    }
    assert (await refusal(approvers.approve(late, BOB))).reason is Reason.TICKET_CLOSED
    for ticket, reason in expected:
        acts = await service.acts(ticket.name)
        assert reason.name in {act["act"]["reason"] for act in acts if act["event_class"] == "ticket_refused"}


@pytest.mark.parametrize("peer", ["orchestrator", "edge", "gateway", "registry", "operator"])
async def test_tickets_are_created_and_redeemed_by_the_executor_alone(service: Any, peer: str) -> None:
    ticket = await create(service.stub("executor"))
    stub = service.stub(peer)
    for call in (stub.CreateTicket(request()), stub.RedeemTicket(redemption(ticket))):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_the_sweeper_stores_each_step_once(service: Any, environment: dict[str, str]) -> None:
    stub = service.stub("executor")
    made = [await create(stub, escalation_chain=["a", "b", "c"]) for _ in range(20)]
    for ticket in made:
        await service.age(ticket.name, 29 * 3600)
    second = await build(load(Settings, environment), Log("approval", level="error", descriptor=2), Tracing())
    await second.start()
    try:
        async with asyncio.timeout(60):
            for ticket in made:
                while len(acts := await service.acts(ticket.name)) < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                kinds = [act["event_class"] for act in acts]
                assert kinds == ["ticket_created", "ticket_escalated", "ticket_escalated", "ticket_closed"]
    finally:
        await second.stop()


async def test_an_override_needs_its_group_and_a_review(service: Any, approvers: Approvers) -> None:
    ticket = await create(service.stub("executor"))
    asked = pb.OverrideTicketRequest(name=ticket.name, reason="the site is down")

    def override(subject: str, groups: str) -> Any:
        token = approvers.token(subject, groups, "approvals:decide approvals:override")
        return approvers.stub.OverrideTicket(asked, metadata=token)

    assert (await refusal(override(BOB, "leads"))).reason is Reason.APPROVER_NOT_ELIGIBLE
    assert (await refusal(override(ALICE, "oncall"))).reason is Reason.SELF_APPROVAL
    made = (await override(ERIN, "oncall owners")).ticket
    assert made.state == tickets.TICKET_STATE_APPROVED
    assert made.override.review_state == tickets.REVIEW_STATE_PENDING

    def review(subject: str, groups: str, verdict: Any = tickets.REVIEW_STATE_UPHELD) -> Any:
        message = pb.ReviewOverrideRequest(name=ticket.name, verdict=verdict, finding="it was")
        return approvers.stub.ReviewOverride(message, metadata=approvers.token(subject, groups))

    assert (await refusal(review(ERIN, "owners"))).reason is Reason.SELF_APPROVAL
    assert (await refusal(review(BOB, "guests"))).reason is Reason.APPROVER_NOT_ELIGIBLE
    assert (await review(BOB, "leads")).ticket.override.review_state == tickets.REVIEW_STATE_UPHELD
    error = await refusal(review(CAROL, "leads", tickets.REVIEW_STATE_REJECTED))
    assert error.reason is Reason.FAILED_PRECONDITION
    kinds = [act["event_class"] for act in await service.acts(ticket.name) if act["event_class"] != "ticket_refused"]
    assert kinds == ["ticket_created", "ticket_overridden", "ticket_reviewed"]


async def test_each_reader_sees_its_own_tickets(service: Any, approvers: Approvers, signer: Any) -> None:
    executor, stub = service.stub("executor"), service.stub("edge")
    ours, theirs = [
        await create(executor, requester=caller_pb2.Caller(subject=ALICE, agent=AGENT, tenant=tenant))
        for tenant in ("acme", "globex")
    ]
    approver, requester = pb.TICKET_VIEW_APPROVER, pb.TICKET_VIEW_REQUESTER
    expected: list[tuple[dict[str, Any], Any, list[Any]]] = [
        ({"scope": "approvals:read", "tenant": "acme"}, 0, [ours]),
        ({"scope": "approvals:read", "tenant": "globex"}, 0, [theirs]),
        ({"scope": "approvals:read"}, 0, [ours, theirs]),
        ({"scope": "", "tenant": "acme"}, 0, []),
        ({"scope": "", "tenant": "acme", "subject": ALICE}, 0, [ours]),
        ({"scope": "", "tenant": "acme", "subject": ALICE}, requester, [ours]),
        ({"scope": "", "tenant": "acme", "subject": ALICE, "groups": ["leads"]}, approver, []),
        ({"scope": "", "tenant": "acme", "subject": AGENT, "groups": ["leads"]}, approver, []),
        ({"scope": "", "tenant": "acme", "groups": ["leads"]}, approver, [ours]),
        ({"scope": "", "tenant": "acme", "groups": ["owners"]}, approver, []),
        ({"scope": "", "tenant": "acme", "groups": ["owners"]}, 0, [ours]),
        ({"scope": "", "groups": ["leads"]}, approver, [ours, theirs]),
    ]
    for claims, view, visible in expected:
        token = bearer(signer.mint(**{"subject": BOB, **claims}))
        page = await stub.ListTickets(pb.ListTicketsRequest(view=view), metadata=token)
        assert sorted(ticket.name for ticket in page.tickets) == sorted(ticket.name for ticket in visible), claims
        watched = [piece async for piece in _until_synced(stub.WatchTickets(_watch(view), metadata=token))]
        assert sorted(watched) == sorted(ticket.name for ticket in visible), claims
        for ticket in (ours, theirs) if view == 0 else ():
            call = stub.GetTicket(pb.GetTicketRequest(name=ticket.name), metadata=token)
            if ticket in visible:
                assert (await call).ticket == ticket
            else:
                assert (await refusal(call)).reason is Reason.NOT_FOUND
    assert (await refusal(stub.GetTicket(pb.GetTicketRequest(name=ours.name)))).reason is Reason.UNAUTHENTICATED
    cancel = pb.CancelTicketRequest(name=ours.name)
    error = await refusal(stub.CancelTicket(cancel, metadata=approvers.token(BOB, scope="approvals:read")))
    assert error.reason is Reason.NOT_FOUND
    canceled = (await stub.CancelTicket(cancel, metadata=approvers.token(ALICE, scope=""))).ticket
    assert canceled.state == tickets.TICKET_STATE_CANCELED
    assert (await stub.CancelTicket(cancel, metadata=approvers.token(ALICE, scope=""))).ticket == canceled


def _watch(view: int) -> pb.WatchTicketsRequest:
    return pb.WatchTicketsRequest(view=view)  # type: ignore[arg-type]


async def _until_synced(stream: Any) -> Any:
    async for piece in stream:
        for ticket in piece.tickets:
            yield ticket.name
        if piece.synced:
            stream.cancel()
            return


async def test_a_watcher_sees_tickets_come_and_change(service: Any, approvers: Approvers) -> None:
    stub = service.stub("edge")
    stream = stub.WatchTickets(pb.WatchTicketsRequest(view=pb.TICKET_VIEW_APPROVER), metadata=approvers.token(BOB))
    async with asyncio.timeout(60):
        assert (await stream.read()).synced
        ticket = await create(service.stub("executor"), quorum=1)
        seen = await _next_state(stream, ticket.name)
        assert seen == tickets.TICKET_STATE_PENDING
        await approvers.approve(ticket, CAROL)
        while seen != tickets.TICKET_STATE_APPROVED:
            seen = await _next_state(stream, ticket.name)
    stream.cancel()


async def _next_state(stream: Any, name: str) -> Any:
    while True:
        for ticket in (await stream.read()).tickets:
            if ticket.name == name:
                return ticket.state


async def test_no_requester_floods_the_approvers(service: Any) -> None:
    stub = service.stub("executor")
    # In turns, so that each is answered within its deadline also on a busy machine.
    for _ in range(10):
        await asyncio.gather(*(create(stub) for _ in range(10)))
    error = await refusal(stub.CreateTicket(request(arguments_digest="sha256:more")))
    assert error.reason is Reason.RATE_LIMITED
    # Another requester, and the same one after the end of a ticket, ask as before.
    await create(stub, requester=caller_pb2.Caller(subject=BOB, tenant="acme"))
    [ticket] = (await stub.ListTickets(pb.ListTicketsRequest(page_size=1, page_token=""))).tickets[:1]
    for listed in (await stub.ListTickets(pb.ListTicketsRequest(page_size=5))).tickets:
        await stub.CancelTicket(pb.CancelTicketRequest(name=listed.name))
    assert (await create(stub)).name != ticket.name


async def test_ticket_pages_are_newest_first_and_bound_to_their_query(service: Any, signer: Any) -> None:
    stub = service.stub("executor")
    made = [(await create(stub)).name for _ in range(5)]
    seen, token, last = [], "", ""
    while True:
        page = await stub.ListTickets(pb.ListTicketsRequest(page_size=2, page_token=token))
        seen += [t.name for t in page.tickets]
        token = page.next_page_token
        if not token:
            break
        last = token
    assert seen == made[::-1]
    for changes in ({"state": tickets.TICKET_STATE_PENDING}, {"view": pb.TICKET_VIEW_APPROVER}, {"page_token": "!!"}):
        other = pb.ListTicketsRequest(**{"page_token": last, **changes})  # type: ignore[arg-type]
        assert (await refusal(stub.ListTickets(other))).reason is Reason.PAGE_TOKEN_INVALID
    edge = service.stub("edge")
    reader = bearer(signer.mint(scope="approvals:read", tenant="acme"))
    following = pb.ListTicketsRequest(page_token=last)
    assert (await refusal(edge.ListTickets(following, metadata=reader))).reason is Reason.PAGE_TOKEN_INVALID


async def test_only_the_executor_creates_and_redeems_tickets(service: Any, signer: Any) -> None:
    ticket = await create(service.stub("executor"))
    token = bearer(signer.mint(scope="approvals:read approvals:decide approvals:override"))
    for peer in ("operator", "registry", "audit", "edge", "gateway", "orchestrator"):
        stub = service.stub(peer)
        metadata = token if peer in ("edge", "gateway", "orchestrator") else None
        assert (await refusal(stub.CreateTicket(request(), metadata=metadata))).reason is Reason.PEER_NOT_ALLOWED
        error = await refusal(stub.RedeemTicket(redemption(ticket), metadata=metadata))
        assert error.reason is Reason.PEER_NOT_ALLOWED
    # The operator is no person, and decides nothing.
    error = await refusal(service.stub("operator").ApproveTicket(pb.ApproveTicketRequest(name=ticket.name)))
    assert error.reason is Reason.PEER_NOT_ALLOWED
    for rpc_name in ("GetTicket", "CancelTicket"):
        message = getattr(pb, f"{rpc_name}Request")(name="tickets/none")
        assert (await refusal(getattr(service.stub("executor"), rpc_name)(message))).reason is Reason.NOT_FOUND


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


async def test_one_caller_has_a_limited_number_of_watches(service: Any, approvers: Approvers) -> None:
    stub, limit = service.stub("edge"), StreamLimits().per_subject
    watches = [stub.WatchTickets(_watch(0), metadata=approvers.token(BOB)) for _ in range(limit)]
    for watch in watches:
        await watch.read()
    one_more = stub.WatchTickets(_watch(0), metadata=approvers.token(BOB))
    assert (await refusal(one_more.read())).reason is Reason.RATE_LIMITED
    other = stub.WatchTickets(_watch(0), metadata=approvers.token(CAROL))
    assert (await other.read()).synced
    for watch in (*watches, other):
        watch.cancel()
