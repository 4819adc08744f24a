"""Invocations by name that wait for a person, on two executors that share a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.authz.v1 import decision_pb2 as dpb
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.rpc.status import from_envelope
from libs.common.telemetry.log import Log
from services.executor.config import Settings
from services.executor.tests.peers import ApprovalPeer, AuditPeer, AuthzPeer
from services.executor.tests.rpc.replicas import Replicas, running_replicas
from tests.harness.executors import booking_executor
from tests.harness.executors.booking_executor import entries
from tests.harness.executors.stepping_tool import effects

WAITING = ipb.INVOCATION_STATE_AWAITING_APPROVAL


@pytest.fixture
async def guarded(
    pki: Any,
    signer: Any,
    executor_settings: Callable[..., Settings],
    approval: ApprovalPeer,
    authz: AuthzPeer,
    quiet: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Replicas]:
    """Two executors whose tenants run one job at once, and whose policy asks for a person from now on."""
    monkeypatch.setattr(booking_executor, "_FAULTS", tmp_path)
    more = {"APPROVAL_ADDRESS": str(approval.address), "JOB_TENANT_CONCURRENCY": "1"}
    async with running_replicas(pki, signer, executor_settings, quiet, tmp_path, **more) as running:
        asks = dpb.NeedsApproval(approver_groups=["approvers"], quorum=1)
        authz.answer = lambda facts: authz.decision(needs_approval=asks, cacheable=False)
        yield running


_next_ms = iter(range(1, 1000))


async def start(replicas: Replicas, where: int, key: str, **fields: Any) -> Any:
    """Start a call of its own arguments, so that it gets a ticket of its own."""
    call = call_pb.InvokeRequest(tool="book_asked", arguments=b'{"takes_ms":%d}' % next(_next_ms), idempotency_key=key)
    started = await replicas.ask(where, "StartInvocation", pb.StartInvocationRequest(request=call, **fields))
    assert started.invocation.state == WAITING
    assert started.invocation.ticket
    return started.invocation


def states(events: list[Any]) -> list[str]:
    return [
        ipb.InvocationState.Name(event.transition.state).removeprefix("INVOCATION_STATE_").lower()
        for event in events
        if event.HasField("transition")
    ]


async def test_a_job_waits_for_its_ticket_without_a_slot_and_ends_as_that_is_decided(
    guarded: Replicas, approval: ApprovalPeer, audit: AuditPeer
) -> None:
    async def until_seen(peer: ApprovalPeer, looks: int) -> None:
        while peer.looks < looks:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    ends = {
        "DENIED": Reason.APPROVAL_REJECTED,
        "AUTO_DENIED": Reason.APPROVAL_REJECTED,
        "CANCELED": Reason.TICKET_CLOSED,
        "EXPIRED": Reason.TICKET_EXPIRED,
    }
    waiting = {state: await start(guarded, index % 2, f"k-{state}") for index, state in enumerate(ends)}
    canceled = await start(guarded, 0, "k-cancel")
    late = await start(guarded, 1, "k-late", max_duration=Duration(seconds=1))
    approved = await start(guarded, 0, "k-approve")
    # Several wait though their tenant runs one at once. Looking at tickets decides and records nothing.
    records = len(audit.about(approved.invocation_id))
    await until_seen(approval, approval.looks + 10)
    assert len(audit.about(approved.invocation_id)) == records
    listed = await guarded.ask(1, "ListInvocations", pb.ListInvocationsRequest(states=[WAITING]))
    assert approved.name in [each.name for each in listed.invocations]
    assert listed.invocations[0].ticket

    for state, job in waiting.items():
        approval.put(job.ticket, state)
        ended = await guarded.ended(1, job.name)
        assert from_envelope(ended.error).reason is ends[state], state

    await guarded.ask(1, "CancelInvocation", pb.CancelInvocationRequest(name=canceled.name))
    ended = await guarded.ended(0, canceled.name)
    assert ended.state == ipb.INVOCATION_STATE_CANCELED
    assert approval.state(canceled.ticket) == "CANCELED"

    ended = await guarded.ended(0, late.name)
    assert from_envelope(ended.error).reason is Reason.DEADLINE_EXCEEDED
    assert approval.state(late.ticket) == "CANCELED"

    # The replica that accepted it stops; the other one goes on.
    watch = guarded.watch(1, approved.name)
    await guarded.stop(0)
    approval.put(approved.ticket, "APPROVED")
    events = [each.event async for each in watch]
    assert states(events)[-4:] == ["awaiting_approval", "approved", "queued", "running"]
    assert events[-1].ended.state == ipb.INVOCATION_STATE_SUCCEEDED
    assert (await guarded.ended(1, approved.name)).ticket == approved.ticket
    assert len(approval.redemptions[approved.ticket]) == 1
    ran = [key for key, _, _ in entries(guarded.folder) if key.startswith("k-")]
    assert ran == ["k-approve"]


async def test_the_same_key_is_the_same_waiting_job_and_asks_no_one_again(
    guarded: Replicas, approval: ApprovalPeer
) -> None:
    call = call_pb.InvokeRequest(tool="book_asked", arguments=b'{"takes_ms":0}', idempotency_key=new_id())
    request = pb.StartInvocationRequest(request=call)
    first, second = [(await guarded.ask(where, "StartInvocation", request)).invocation for where in (0, 1)]
    assert first.name == second.name
    approval.put(first.ticket, "APPROVED")
    ended = await guarded.ended(0, first.name)
    assert ended.state == ipb.INVOCATION_STATE_SUCCEEDED
    again = (await guarded.ask(1, "StartInvocation", request)).invocation
    assert (again.name, again.state) == (first.name, ipb.INVOCATION_STATE_SUCCEEDED)
    assert len(approval.tickets) == 1


async def test_a_resumed_run_needs_an_approval_of_its_own(guarded: Replicas, approval: ApprovalPeer) -> None:
    arguments = b'{"steps":3,"fail_at":3}'
    call = call_pb.InvokeRequest(tool="step_once", arguments=arguments, idempotency_key=new_id())
    first = (await guarded.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation
    assert first.state == WAITING
    approval.put(first.ticket, "APPROVED")
    assert (await guarded.ended(0, first.name)).state == ipb.INVOCATION_STATE_FAILED
    ran = effects(guarded.folder, call.idempotency_key)
    assert ran == [1, 2]
    request = pb.ResumeInvocationRequest(name=first.name, checkpoint=pb.ResumePoint())
    resumed = (await guarded.ask(1, "ResumeInvocation", request)).invocation
    # The approval was for one run; nothing runs before another one.
    assert (resumed.state, resumed.ticket != first.ticket) == (WAITING, True)
    looks = approval.looks
    while approval.looks < looks + 5:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert effects(guarded.folder, call.idempotency_key) == ran
    approval.put(resumed.ticket, "APPROVED")
    assert (await guarded.ended(1, resumed.name)).state == ipb.INVOCATION_STATE_SUCCEEDED
    assert effects(guarded.folder, call.idempotency_key) == [1, 2, 3]
