"""What approvals cost: tickets created, approved and redeemed, and lists beside 10,000 open ones."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import Any

import psycopg
from google.protobuf.duration_pb2 import Duration
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc
from toolmesh.approval.v1 import ticket_pb2
from toolmesh.common.v1 import caller_pb2

from bench.environment.machine import cpu_seconds
from bench.environment.mesh import Stage
from bench.floors.echo import EMPTY
from bench.load.generator import Body, offer
from bench.report.measurement import Row
from libs.common.ids import new_id

AT = 16
TICKETS = 400
OPEN = 10_000
# A list beside many tickets may take this much longer than one beside few; both run on a busy machine.
MOST_SLOWER = 2.0


def run(stage: Stage) -> Iterator[Row]:
    """Measure the life of tickets, then lists, watches and escalation beside few and beside many open ones."""
    target = stage.floor(EMPTY)
    empty = offer(
        "approvals", "an empty call", target, [Body(b"")], concurrency=AT, pids=[stage.floor_pid], seconds=1.5, warm=0.5
    )
    yield empty
    with ExitStack() as stack:
        desk = _Desk(stage, stack)
        yield _lives(desk, stage).against(empty)
        few = [desk.list_row("few"), desk.watch_row("few"), desk.escalation_row("few")]
        yield from few
        _copy_ticket(stage.database(), desk.create(_requester(1000)).name.removeprefix("tickets/"))
        many = [desk.list_row("10,000"), desk.watch_row("10,000"), desk.escalation_row("10,000")]
        for row, before in zip(many, few, strict=True):
            slower = row.p50_ms / before.p50_ms if before.p50_ms else 0.0
            yield row.held(f"at most {MOST_SLOWER:g} times as long as beside few", met=slower <= MOST_SLOWER)


class _Desk:
    """The executor, an approver and a reader."""

    def __init__(self, stage: Stage, stack: ExitStack) -> None:
        mesh = stage.mesh
        self._executor = rpc.ApprovalServiceStub(stack.enter_context(mesh.direct_channel("approval", "executor")))
        self._people = rpc.ApprovalServiceStub(stack.enter_context(mesh.direct_channel("approval")))
        self._database = stack.enter_context(psycopg.connect(stage.database(), autocommit=True))
        token = mesh.token(sub="did:web:example.com:bob", scopes="approvals:decide", groups="approvers", tenant="bench")
        self._metadata: Any = [("authorization", f"Bearer {token}")]

    def create(self, requester: caller_pb2.Caller | None = None, **more: Any) -> Any:
        request = pb.CreateTicketRequest(
            request_id=new_id(),
            tool_version="tools/core.echo/versions/1.0.0",
            tool_digest="sha256:00",
            arguments_digest=f"sha256:{new_id()}",
            requester=requester or _requester(random.randrange(1000)),
            invocation="invocations/bench",
            escalation_chain=["approvers", "owners"],
            **more,
        )
        return self._executor.CreateTicket(request, timeout=60).ticket

    def live(self, _: int) -> None:
        """Create, approve and redeem one ticket."""
        ticket = self.create()
        self._people.ApproveTicket(pb.ApproveTicketRequest(name=ticket.name), metadata=self._metadata, timeout=60)
        use = pb.RedeemTicketRequest(
            name=ticket.name,
            requester=ticket.requester,
            tool_version=ticket.tool_version,
            tool_digest=ticket.tool_digest,
            arguments_digest=ticket.arguments_digest,
            redemption_id=ticket.name,
            invocation="invocations/bench",
        )
        self._executor.RedeemTicket(use, timeout=60)

    def list_row(self, beside: str) -> Row:
        pending = ticket_pb2.TICKET_STATE_PENDING
        request = pb.ListTicketsRequest(page_size=20, state=pending, view=pb.TICKET_VIEW_APPROVER)
        took = _timed(lambda: self._people.ListTickets(request, metadata=self._metadata, timeout=60))
        return Row("approvals", f"20 tickets listed for an approver, beside {beside} open", p50_ms=took)

    def watch_row(self, beside: str) -> Row:
        """Measure how long a new ticket takes to a watcher that has all open ones."""
        watch = self._people.WatchTickets(pb.WatchTicketsRequest(), metadata=self._metadata, timeout=600)
        while not next(watch).synced:
            continue

        def arrival() -> None:
            name = self.create().name
            while name not in {ticket.name for ticket in next(watch).tickets}:
                continue

        took = _timed(arrival)
        watch.cancel()
        return Row("approvals", f"a new ticket at a watcher, beside {beside} open", p50_ms=took)

    def escalation_row(self, beside: str) -> Row:
        """Measure how long after its time the escalation of a ticket is stored. The sweeper runs every two seconds."""

        def lateness() -> float:
            # The second of two groups is asked after a quarter of the lifetime.
            ticket = self.create(lifetime=Duration(seconds=4))
            due, name = ticket.escalate_time.ToNanoseconds() / 1e9, ticket.name.removeprefix("tickets/")
            while (stored := self._escalated(name)) is None:
                time.sleep(0.02)
            return (stored - due) * 1000

        took = round(median(lateness() for _ in range(10)), 2)
        return Row("approvals", f"an escalation stored after it is due, beside {beside} open", p50_ms=took)

    def _escalated(self, ticket_id: str) -> float | None:
        """Return when the escalation of a ticket was stored; None if it is not yet."""
        found = "select extract(epoch from update_time)::float8 from approval.tickets where escalation_index = 1"
        row = self._database.execute(f"{found} and ticket_id = %s", [ticket_id]).fetchone()
        return None if row is None else float(row[0])


def _copy_ticket(database: str, ticket_id: str) -> None:
    """Make many open tickets out of one, each for another call."""
    own = dict.fromkeys(("ticket_id", "request_id", "call_digest"), "md5(n::text)")
    own["update_time"] = "clock_timestamp()"
    listed = "select column_name from information_schema.columns where table_schema = 'approval'"
    with psycopg.connect(database, autocommit=True) as connection:
        rows = connection.execute(f"{listed} and table_name = 'tickets' and is_generated = 'NEVER'").fetchall()
        names = [f'"{name}"' for (name,) in rows]
        values = [own.get(name, f'"{name}"') for (name,) in rows]
        copies = f"from approval.tickets, generate_series(1, {OPEN}) n where ticket_id = %s"
        into = f"insert into approval.tickets ({', '.join(names)})"
        connection.execute(f"{into} select {', '.join(values)} {copies}", [ticket_id])
        # As the database does by itself within a minute.
        connection.execute("analyze approval.tickets")


def _requester(number: int) -> caller_pb2.Caller:
    """Return one of many requesters: the open tickets of each are bounded."""
    return caller_pb2.Caller(subject=f"did:web:example.com:user-{number}", tenant="bench", token_id=f"t-{number}")


def _lives(desk: _Desk, stage: Stage) -> Row:
    _at_once(desk.live, AT)
    pids = stage.pids("approval", "authz")
    began, used = time.monotonic(), cpu_seconds(pids)
    _at_once(desk.live, TICKETS)
    seconds, cpu = time.monotonic() - began, cpu_seconds(pids) - used
    case = "ticket, created, approved and redeemed"
    return Row("approvals", case, AT, rps=round(TICKETS / seconds, 1), cpu_us_per_call=round(cpu / TICKETS * 1e6, 1))


def _at_once(work: Callable[[int], Any], number: int) -> None:
    with ThreadPoolExecutor(AT) as pool:
        for _ in pool.map(work, range(number)):
            continue


def _timed(work: Callable[[], Any], times: int = 15) -> float:
    """Return the median duration in milliseconds."""
    taken = []
    for _ in range(times):
        began = time.monotonic()
        work()
        taken.append((time.monotonic() - began) * 1000)
    return round(median(taken), 2)
