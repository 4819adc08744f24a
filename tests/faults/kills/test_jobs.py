"""Jobs on two executors that are killed at random: every accepted job ends, and its effect happens once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc.aio
import pytest
from toolmesh.approval.v1 import approval_service_pb2 as approval_pb
from toolmesh.approval.v1.approval_service_pb2_grpc import ApprovalServiceStub
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.ids import new_id
from tests.harness.executors.booking_executor import entries
from tests.harness.executors.fleet import Fleet, channel_of
from tests.harness.mesh import Mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

RULES = ("book_again", "book_asked", "book_once")
UNKNOWN_OUTCOME, REJECTED = "E3410", "E3211"
JOBS = 300
KILLS = 20


class Jobs:
    """Starts jobs and waits for them, at any executor that is alive."""

    def __init__(self, stubs: list[Any], token: str) -> None:
        self.stubs, self._metadata = stubs, (("authorization", f"Bearer {token}"),)

    async def start(self, tool: str, key: str, takes_ms: int, priority: int) -> str:
        """Start a job; the same key starts none twice, so a lost answer is asked for again."""
        arguments = json.dumps({"takes_ms": takes_ms}).encode()
        return await self.start_call(
            call_pb.InvokeRequest(tool=tool, arguments=arguments, idempotency_key=key, priority=priority)
        )

    async def start_call(self, call: call_pb.InvokeRequest) -> str:
        """Start a job of any tool."""
        answer = await self._ask("StartInvocation", pb.StartInvocationRequest(request=call))
        return str(answer.invocation.name)

    async def get(self, name: str) -> Any:
        """Return a job as it is."""
        return (await self._ask("GetInvocation", pb.GetInvocationRequest(name=name))).invocation

    async def ended(self, name: str) -> Any:
        """Return a job once it has ended."""
        while True:
            found = (await self._ask("WaitInvocation", pb.WaitInvocationRequest(name=name))).invocation
            if found.HasField("end_time"):
                return found

    async def sequences(self, name: str) -> list[int]:
        """Return the sequences of all events of a job that ended."""
        stub = random.choice(self.stubs)
        watch = stub.WatchInvocation(pb.WatchInvocationRequest(name=name), metadata=self._metadata, wait_for_ready=True)
        return [each.event.sequence async for each in watch if each.HasField("event")]

    async def _ask(self, method: str, request: Any) -> Any:
        while True:
            stub = random.choice(self.stubs)
            try:
                return await getattr(stub, method)(request, metadata=self._metadata, timeout=60, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    grpc.StatusCode.CANCELLED,
                    grpc.StatusCode.NOT_FOUND,
                    # One caller asks for more than its rate.
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                ):
                    raise
                await asyncio.sleep(0.1)


@asynccontextmanager
async def connected(fleet: Fleet, token: str) -> AsyncIterator[Jobs]:
    channels = [channel_of(fleet, member) for member in fleet.members]
    try:
        yield Jobs([rpc.InvocationServiceStub(channel) for channel in channels], token)
    finally:
        for channel in channels:
            await channel.close()


def effects(folder: Path, tool: str, key: str) -> int:
    """How often the effect of a job happened."""
    if tool == "book_again":
        return int((folder / f"entry-{key}").exists())
    return Counter(each for each, _, _ in entries(folder))[key]


async def kill_at_random(fleet: Fleet, chance: random.Random, kills: int = KILLS) -> None:
    """Kill executors at random moments, and start them again."""
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.2, 3.0))
        await asyncio.to_thread(fleet.kill, chance.choice(fleet.members))
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        fleet.revive()


async def test_every_job_ends_and_has_its_effect_once_whichever_executor_dies(
    own_mesh: Mesh, fleet: Fleet, folder: Path
) -> None:
    chance = random.Random(20_261_117)
    async with connected(fleet, own_mesh.token(trust="90", ttl="1h")) as jobs, asyncio.timeout(1500):
        killing = asyncio.create_task(kill_at_random(fleet, chance))
        wanted = [(RULES[n % 3], new_id(), chance.randrange(0, 400), 1 + n % 9) for n in range(JOBS)]
        names = await asyncio.gather(*(jobs.start(*each) for each in wanted))
        await killing
        await asyncio.to_thread(fleet.wait_ready)
        ended = await asyncio.gather(*(jobs.ended(name) for name in names))
        sample = await asyncio.gather(*(jobs.sequences(name) for name in names[:20]))
    assert len(set(names)) == JOBS
    outcomes = Counter[tuple[str, str]]()
    for (tool, key, _, _), job in zip(wanted, ended, strict=True):
        code = job.error.code if job.HasField("error") else ""
        outcomes[tool, code] += 1
        told = f"{tool} {job.name}: {code or 'succeeded'}"
        assert code in ("", *([UNKNOWN_OUTCOME] if tool == "book_once" else [])), told
        happened = effects(folder, tool, key)
        assert happened == 1 if code == "" else happened <= 1, told
    for sequences in sample:
        assert sequences == list(range(1, len(sequences) + 1))
    print(f"\n{JOBS} jobs, {KILLS} kills: {dict(outcomes)}")  # noqa: T201


QUEUED = 1000


async def test_a_thousand_waiting_jobs_end_by_priority_although_half_of_the_executors_die(
    own_mesh: Mesh, fleet: Fleet, folder: Path
) -> None:
    await asyncio.to_thread(fleet.wait_ready)
    async with connected(fleet, own_mesh.token(trust="90", ttl="1h")) as jobs, asyncio.timeout(1500):
        # An executor runs 16 at once, a tenant 8: nearly all of them wait.
        wanted = [("book_again", new_id(), 100, 1 + n % 9) for n in range(QUEUED)]
        names = await asyncio.gather(*(jobs.start(*each) for each in wanted))
        # A caller may have so many calls under way.
        turns = asyncio.Semaphore(100)

        async def ended_in_turn(name: str) -> Any:
            async with turns:
                return await jobs.ended(name)

        waiting = [asyncio.create_task(ended_in_turn(name)) for name in names]
        while sum(task.done() for task in waiting) < QUEUED / 2:
            await asyncio.wait([task for task in waiting if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(fleet.kill, fleet.members[0])
        del jobs.stubs[0]
        ended = await asyncio.gather(*waiting)
    fleet.revive()
    await asyncio.to_thread(fleet.wait_ready)
    assert len(set(names)) == QUEUED
    assert not [job.error.code for job in ended if job.HasField("error")]
    assert all(effects(folder, tool, key) == 1 for tool, key, _, _ in wanted)
    waits: dict[int, list[float]] = defaultdict(list)
    for (_, _, _, priority), job in zip(wanted, ended, strict=True):
        waited = job.start_time.ToNanoseconds() - job.create_time.ToNanoseconds()
        waits[priority].append(round(waited / 1e9, 1))
    medians = {priority: median(times) for priority, times in sorted(waits.items())}
    longest = max(max(times) for times in waits.values())
    print(f"\n{QUEUED} jobs: median wait by priority in seconds {medians}, longest {longest}")  # noqa: T201
    assert medians[9] < medians[5] < medians[1]


AWAITING = 30


async def test_jobs_that_wait_for_a_person_wait_on_whichever_executor_dies(
    own_mesh: Mesh, fleet: Fleet, folder: Path
) -> None:
    chance = random.Random(20_261_118)
    await asyncio.to_thread(fleet.wait_ready)
    approver = own_mesh.token(sub="did:web:example.com:bob", scopes="approvals:decide", groups="approvers", ttl="1h")
    # A caller of little trust needs approval for writes. Each call is another one, so that it has a ticket of its own.
    async with connected(fleet, own_mesh.token(ttl="1h")) as jobs, asyncio.timeout(1500):
        wanted = [(RULES[n % 3], new_id(), n, 5) for n in range(AWAITING)]
        names = await asyncio.gather(*(jobs.start(*each) for each in wanted))
        killing = asyncio.create_task(kill_at_random(fleet, chance, 8))
        decisions: list[bool] = []
        with own_mesh.edge_channel() as edge:
            for n, name in enumerate(names):
                ticket = (await jobs.get(name)).ticket
                assert ticket
                decisions.append(n % 4 != 3)
                await asyncio.to_thread(_decide, ApprovalServiceStub(edge), ticket, approver, approved=decisions[-1])
        await killing
        await asyncio.to_thread(fleet.wait_ready)
        ended = await asyncio.gather(*(jobs.ended(name) for name in names))
    assert len(set(names)) == AWAITING
    for (tool, key, _, _), job, approved in zip(wanted, ended, decisions, strict=True):
        code, happened = job.error.code if job.HasField("error") else "", effects(folder, tool, key)
        if not approved:
            assert (code, happened) == (REJECTED, 0)
        elif code == "":
            assert happened == 1
        else:
            assert (tool, code, happened <= 1) == ("book_once", UNKNOWN_OUTCOME, True)


def _decide(stub: Any, ticket: str, token: str, *, approved: bool) -> None:
    metadata = [("authorization", f"Bearer {token}")]
    if approved:
        stub.ApproveTicket(approval_pb.ApproveTicketRequest(name=ticket), metadata=metadata, timeout=60)
    else:
        stub.DenyTicket(approval_pb.DenyTicketRequest(name=ticket, reason="no"), metadata=metadata, timeout=60)
