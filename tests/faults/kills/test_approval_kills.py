"""Both approval replicas are killed at random while a thousand tickets are decided, redeemed and left to time."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc
from toolmesh.approval.v1 import ticket_pb2 as tpb
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.rpc.status import from_rpc_error
from localmesh.state.pki import Pki
from tests.harness.mesh import Mesh, cli, running_mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

TICKETS, KILLS, WORKERS = 1000, 50, 8
GROUPS = ["first", "second", "third"]
REPLICAS = ("approval", "approval-2")
OPEN = (tpb.TICKET_STATE_PENDING, tpb.TICKET_STATE_APPROVED)
SECRET = "whsec_" + "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
# The error of a replica that is away, or does not know the revocations yet.
AWAY = {Reason.SERVICE_UNAVAILABLE, Reason.DEADLINE_EXCEEDED}


class Receiver(BaseHTTPRequestHandler):
    """Keeps the ids of all notifications, and refuses a tenth of the messages."""

    seen: Counter[str] = Counter()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        refused = random.random() < 0.1
        if not refused:
            Receiver.seen.update(each["id"] for each in body["notifications"])
        self.send_response(503 if refused else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is the base class's)
        """Say nothing."""


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    folder = tmp_path_factory.mktemp("approval-kills")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = {"name": "hook", "kind": "webhook", "url": f"http://localhost:{server.server_port}/", "secret": SECRET}
    channels = {"channels": [hook], "internal_hosts": ["localhost"], "hourly_limit": 10_000}
    (folder / "channels.json").write_text(json.dumps(channels))
    environ = {"TOOLMESH_APPROVAL_NOTIFICATIONS": str(folder / "channels.json")}
    with running_mesh(folder / "state", "--scale", "approval=2", **environ) as running:
        yield running
    server.shutdown()


class Desk:
    """Calls any replica that is alive, again and again until one answers."""

    def __init__(self, stack: ExitStack, mesh: Mesh) -> None:
        channels = []
        for part in REPLICAS:
            address = mesh.part(part)["address"]
            channels.append(stack.enter_context(_channel(mesh, address, "executor")))
        self._executors = [rpc.ApprovalServiceStub(channel) for channel in channels]
        self._edge = rpc.ApprovalServiceStub(stack.enter_context(mesh.edge_channel()))
        self._tokens = [
            mesh.token(sub=f"did:web:example.com:{name}", scopes="approvals:decide", groups="first,second,third")
            for name in ("bob", "carol")
        ]

    def as_executor(self, method: str, request: Any) -> Any:
        return _until_answered(lambda: getattr(random.choice(self._executors), method)(request, timeout=5))

    def vote(self, method: str, request: Any) -> Any:
        metadata = [("authorization", f"Bearer {random.choice(self._tokens)}")]
        return _until_answered(lambda: getattr(self._edge, method)(request, metadata=metadata, timeout=5))


def _channel(mesh: Mesh, address: str, identity: str) -> grpc.Channel:
    folder = Path(mesh.runtime["ca"]).parent
    files = Pki(folder).of(identity)
    pair = (files.key.read_bytes(), files.cert.read_bytes())
    credentials = grpc.ssl_channel_credentials(Path(mesh.runtime["ca"]).read_bytes(), *pair)
    return grpc.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", "approval")])


def _until_answered(call: Callable[[], Any]) -> Any:
    """Return the answer, or the reason of a refusal."""
    give_up = time.monotonic() + 300
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            reason = from_rpc_error(error).reason  # type: ignore[arg-type]
            if reason not in AWAY or time.monotonic() > give_up:
                return reason
            time.sleep(0.2)


def live(desk: Desk, number: int) -> str:
    """Create one ticket and do one thing to it, or nothing; return its name."""
    caller = caller_pb2.Caller(subject=f"did:web:example.com:user-{number % 50}", token_id="t-1")
    # One in five is left to time.
    lifetime = 600 if number % 5 else 6 + number % 30
    request = pb.CreateTicketRequest(
        request_id=new_id(),
        tool_version="tools/core.echo/versions/1.0.0",
        tool_digest="sha256:00",
        arguments_digest=f"sha256:{number}",
        requester=caller,
        invocation=f"invocations/{number}",
        escalation_chain=GROUPS,
        quorum=1 + number % 2,
        lifetime=Duration(seconds=lifetime),
    )
    ticket = desk.as_executor("CreateTicket", request).ticket
    match number % 5:
        case 1 | 2:
            for _ in range(8):
                desk.vote("ApproveTicket", pb.ApproveTicketRequest(name=ticket.name))
            use = pb.RedeemTicketRequest(
                name=ticket.name,
                requester=caller,
                tool_version=request.tool_version,
                tool_digest=request.tool_digest,
                arguments_digest=request.arguments_digest,
                redemption_id=f"key-{number}",
                invocation=f"invocations/{number}",
            )
            desk.as_executor("RedeemTicket", use)
        case 3:
            desk.vote("DenyTicket", pb.DenyTicketRequest(name=ticket.name, reason="no"))
        case 4:
            desk.as_executor("CancelTicket", pb.CancelTicketRequest(name=ticket.name))
    return str(ticket.name)


def test_every_ticket_ends_once_and_none_is_approved_by_time(mesh: Mesh) -> None:
    done = threading.Event()
    kills = 0

    def kill() -> None:
        nonlocal kills
        while kills < KILLS and not done.is_set():
            time.sleep(random.uniform(0.2, 2.0))
            part = mesh.part(REPLICAS[kills % 2])
            if part["ready"]:
                mesh.kill(part["name"])
                kills += 1

    with ExitStack() as stack:
        desk = Desk(stack, mesh)
        killer = threading.Thread(target=kill)
        killer.start()
        with ThreadPoolExecutor(WORKERS) as pool:
            names = list(pool.map(lambda number: live(desk, number), range(TICKETS)))
        killer.join()
        tickets: dict[str, Any] = {}
        give_up = time.monotonic() + 600
        while len(tickets) < len(names) and time.monotonic() < give_up:
            for number, name in enumerate(names):
                if name in tickets:
                    continue
                if number % 5:
                    # Its votes may all be of one person; without effect on a ticket that ended.
                    desk.as_executor("CancelTicket", pb.CancelTicketRequest(name=name))
                ticket = desk.as_executor("GetTicket", pb.GetTicketRequest(name=name)).ticket
                if ticket.state not in OPEN:
                    tickets[name] = ticket
            time.sleep(0.5)
    assert kills == KILLS
    assert len(set(names)) == len(names) == len(tickets)
    _check_history(mesh, tickets)


def _check_history(mesh: Mesh, tickets: dict[str, Any]) -> None:
    final = {"auto_denied", "canceled", "redeemed", "expired", "vote_denied"}
    asked = 0
    for ticket in tickets.values():
        kinds = [step.kind for step in ticket.steps]
        assert [step.number for step in ticket.steps] == list(range(1, len(kinds) + 1))
        ends = [kind for kind in kinds if kind in final]
        assert len(ends) == 1, kinds
        assert kinds.count("approved") <= 1
        # Time never approves: every approval has its quorum of votes.
        if "approved" in kinds:
            assert len({vote.approver for vote in ticket.verdicts if vote.approved}) >= ticket.quorum
        assert kinds.count("escalated") == len({step.detail for step in ticket.steps if step.kind == "escalated"})
        asked += 1 + kinds.count("escalated")

    # The log has each step once, however often the replicas died.
    def recorded() -> dict[str, Counter[int]]:
        acts = json.loads(cli("audit", "acts", "tickets", "-n", "20000", "--json", state=mesh.state).stdout)["records"]
        steps: dict[str, Counter[int]] = defaultdict(Counter)
        for act in acts:
            record = act["record"]
            if record["event_class"] != "ticket_refused":
                steps[record["ticket"]][record["result_summary"]["number"]] += 1
        return steps

    expected = {name: Counter(step.number for step in ticket.steps) for name, ticket in tickets.items()}
    give_up = time.monotonic() + 120
    while (steps := recorded()) != expected and time.monotonic() < give_up:
        time.sleep(1)
    assert steps == expected
    # Every notification that arrived has the id of a step that asks a group.
    ids = {
        f"{name}/steps/{step.number}"
        for name, ticket in tickets.items()
        for step in ticket.steps
        if step.kind in ("created", "escalated")
    }
    assert Receiver.seen
    assert Receiver.seen.keys() <= ids
