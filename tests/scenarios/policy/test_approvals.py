"""Calls that need a person, through a running mesh with two approval replicas: by every path, and every wrong use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from mcp_types import CreateTaskResult, GetTaskResult
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as executor_rpc
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as invocation_pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as invocation_rpc

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.rpc.status import from_rpc_error
from tests.harness.clients.mcp_tasks import Tasks, TaskState
from tests.harness.mesh import Mesh, cli, invoke, running_mesh
from tests.harness.stores import wait_until
from tests.scenarios.edge.test_mcp import HELLO, NEW, client_of, request, send

MANIFESTS = Path("examples/packs/textkit/manifests")
ALICE, BOB, EVE = (f"did:web:example.com:{name}" for name in ("alice", "bob", "eve"))
SHRED = "samples.shred_report"
OTHER_RULE = """
@id("others") @effect("deny") @reason("Nothing here is of interest.")
forbid (principal, action == Action::"invoke", resource) when { resource.namespace == "elsewhere" };
"""
Path_ = Callable[["Office", dict[str, Any]], dict[str, Any]]


@dataclass
class Office:
    """A mesh with a tool that cannot be undone, its caller, and its approver."""

    mesh: Mesh
    edge: grpc.Channel
    executor: grpc.Channel
    token: str
    approver: str

    def write(self, name: str) -> None:
        """Write a report, by a caller who needs no approval for that."""
        arguments = json.dumps({"name": name, "title": "T", "body": "B", "replace": True}).encode()
        request = {"idempotency_key": f"write-{name}"}

        def written() -> bool:
            try:
                invoke(self.edge, "samples.write_report", arguments, token=self.token, request=request)
            except grpc.RpcError as error:
                # The edge leaves out an executor whose answer to its probe was late.
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return False
            return True

        wait_until(written, f"writing {name}")

    def approve(self, ticket: str, token: str = "") -> Reason | None:
        """Approve a ticket; return why that is refused."""
        stub = rpc.ApprovalServiceStub(self.edge)
        request = pb.ApproveTicketRequest(name=ticket, reason="seen")
        return reason_of(lambda: stub.ApproveTicket(request, metadata=bearer(token or self.approver), timeout=30))

    def call(self, name: str, ticket: str = "", *, token: str = "", key: str = "", **request: Any) -> dict[str, Any]:
        """Call the tool through the edge."""
        call = {"tool": SHRED, "arguments": {"name": name}, "idempotency_key": key or f"shred-{name}", "ticket": ticket}
        return by_grpc(self, {**call, **request}, token=token)


def bearer(token: str) -> Any:
    return [("authorization", f"Bearer {token}")]


def reason_of(call: Callable[[], Any]) -> Reason | None:
    try:
        call()
    except grpc.RpcError as error:
        return from_rpc_error(error).reason  # type: ignore[arg-type]
    return None


def _message(call: dict[str, Any]) -> executor_pb.InvokeRequest:
    return executor_pb.InvokeRequest(**{**call, "arguments": json.dumps(call["arguments"]).encode()})


def _refused(error: grpc.RpcError) -> dict[str, Any]:
    failure = from_rpc_error(error)  # type: ignore[arg-type]
    return {"reason": failure.reason.name, "ticket": failure.metadata.get("ticket", "")}


def by_grpc(office: Office, call: dict[str, Any], token: str = "", *, direct: bool = False) -> dict[str, Any]:
    stub = executor_rpc.ExecutorServiceStub(office.executor if direct else office.edge)
    try:
        answer = stub.Invoke(_message(call), metadata=bearer(token or office.token), timeout=60)
    except grpc.RpcError as error:
        return _refused(error)
    content: dict[str, Any] = json.loads(answer.result.structured_content)
    return content


def directly(office: Office, call: dict[str, Any]) -> dict[str, Any]:
    return by_grpc(office, call, direct=True)


def _failure(data: dict[str, Any]) -> dict[str, Any]:
    return {"reason": data["reason"], "ticket": data["metadata"].get("ticket", "")}


def by_json_rpc(office: Office, call: dict[str, Any]) -> dict[str, Any]:
    answer = office.mesh.rpc("tools.invoke", call, token=office.token).json()
    if "error" in answer:
        return _failure(answer["error"]["data"])
    content: dict[str, Any] = answer["result"]["structured_content"]
    return content


def by_group(office: Office, call: dict[str, Any]) -> dict[str, Any]:
    answer = office.mesh.rpc("tools.invoke_group", {"calls": [call]}, token=office.token).json()
    [outcome] = answer["result"]["outcomes"]
    if outcome["error"]:
        return _failure(outcome["error"])
    content: dict[str, Any] = outcome["result"]["structured_content"]
    return content


def started(office: Office, name: str) -> Any:
    """Start the call as a job, which waits for its approval."""
    call = {"tool": SHRED, "arguments": {"name": name}, "idempotency_key": f"job-{name}"}
    request = invocation_pb.StartInvocationRequest(request=_message(call))
    stub = invocation_rpc.InvocationServiceStub(office.edge)
    job = stub.StartInvocation(request, metadata=bearer(office.token), timeout=60).invocation
    assert job.state == ipb.INVOCATION_STATE_AWAITING_APPROVAL
    assert job.ticket
    return job


def ended(office: Office, job: Any) -> dict[str, Any]:
    """Return how a job ends."""
    stub = invocation_rpc.InvocationServiceStub(office.edge)
    waiting = invocation_pb.WaitInvocationRequest(name=job.name)
    while not job.HasField("result") and not job.HasField("error"):
        job = stub.WaitInvocation(waiting, metadata=bearer(office.token), timeout=60).invocation
    if job.HasField("error"):
        return {"reason": Reason(job.error.reason).name}
    content: dict[str, Any] = json.loads(job.result.structured_content)
    return content


def by_mcp(office: Office, call: dict[str, Any]) -> dict[str, Any]:
    """Call the tool as an MCP client does, without a session."""
    meta = {
        "dev.toolmesh/idempotencyKey": call["idempotency_key"],
        "dev.toolmesh/ticket": call.get("ticket", ""),
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    name = SHRED.replace(".", "__")
    params = {"name": name, "arguments": call["arguments"], "_meta": meta}
    headers = {
        "authorization": f"Bearer {office.token}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": name,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = httpx.post(f"{office.mesh.url}/mcp", json=body, headers=headers, timeout=60, trust_env=False).json()
    result: dict[str, Any] = answer["result"]
    if result.get("isError"):
        return _failure(result["_meta"]["dev.toolmesh/error"])
    content: dict[str, Any] = result["structuredContent"]
    return content


PATHS: dict[str, Path_] = {
    "grpc": by_grpc,
    "direct": directly,
    "json-rpc": by_json_rpc,
    "group": by_group,
    "mcp": by_mcp,
}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("approvals")
    with running_mesh(folder / "state", "--scale", "approval=2") as mesh, office_of(mesh, folder) as office:
        yield office


@contextmanager
def office_of(mesh: Mesh, folder: Path) -> Iterator[Office]:
    """Register the tools of an office, and connect its people."""
    register(mesh, folder, "1.0.0")
    files = [str(MANIFESTS / f"{name}_report.json") for name in ("write", "remove")]
    cli("tools", "register", *files, state=mesh.state)
    token = mesh.token(sub=ALICE, trust="90")
    approver = mesh.token(sub=BOB, scopes="approvals:decide", groups="approvers")
    with mesh.edge_channel() as edge, mesh.direct_channel("executor") as executor:
        yield Office(mesh, edge, executor, token, approver)


def register(mesh: Mesh, folder: Path, version: str) -> None:
    """Register the removal of reports as a tool that cannot be undone."""
    manifest = json.loads((MANIFESTS / "remove_report.json").read_bytes())
    manifest |= {"tool_id": "shred_report", "version": version, "mutation_class": "write_irreversible"}
    del manifest["compensation_tool"]
    file = folder / f"shred-{version}.json"
    file.write_text(json.dumps(manifest))
    cli("tools", "register", str(file), state=mesh.state)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_irreversible_runs_without_a_redeemed_ticket(office: Office, path: str) -> None:
    send, name = PATHS[path], f"by-{path}"
    office.write(name)
    call: dict[str, Any] = {"tool": SHRED, "arguments": {"name": name}, "idempotency_key": f"key-{path}"}
    refused = send(office, call)
    assert refused["reason"] == "APPROVAL_REQUIRED"
    # Sent again, it is the same ticket, which is still pending.
    assert send(office, call) == refused
    assert send(office, {**call, "ticket": refused["ticket"]}) == refused
    assert office.approve(refused["ticket"]) is None
    # The approval alone does not suffice: the call has to name it.
    assert send(office, {**call, "idempotency_key": f"other-{path}"}) == refused
    approved = {**call, "ticket": refused["ticket"]}
    # The report was still there, so nothing ran before; and it is removed once.
    assert send(office, approved) == {"removed": True}
    assert send(office, approved) == {"removed": True}
    again = send(office, {**approved, "idempotency_key": f"other-{path}"})
    assert again["reason"] == "TICKET_REDEEMED"
    # The key alone answers nothing: it asks for another approval.
    assert send(office, call)["reason"] == "APPROVAL_REQUIRED"


def test_a_job_waits_for_its_approval_and_goes_on_by_itself(office: Office) -> None:
    approvals = rpc.ApprovalServiceStub(office.edge)
    jobs = invocation_rpc.InvocationServiceStub(office.edge)
    for name in ("job-approved", "job-denied", "job-withdrawn", "job-canceled"):
        office.write(name)
    approved, denied, withdrawn, canceled = (
        started(office, name) for name in ("job-approved", "job-denied", "job-withdrawn", "job-canceled")
    )
    assert started(office, "job-approved").name == approved.name
    assert office.approve(approved.ticket) is None
    # The report was still there, so nothing ran before.
    assert ended(office, approved) == {"removed": True}
    assert office.call("job-approved", approved.ticket, key="another")["reason"] == "TICKET_REDEEMED"

    deny = pb.DenyTicketRequest(name=denied.ticket, reason="no")
    approvals.DenyTicket(deny, metadata=bearer(office.approver), timeout=30)
    assert ended(office, denied) == {"reason": "APPROVAL_REJECTED"}

    withdraw = pb.CancelTicketRequest(name=withdrawn.ticket)
    approvals.CancelTicket(withdraw, metadata=bearer(office.token), timeout=30)
    assert ended(office, withdrawn) == {"reason": "TICKET_CLOSED"}

    cancel = invocation_pb.CancelInvocationRequest(name=canceled.name)
    jobs.CancelInvocation(cancel, metadata=bearer(office.token), timeout=30)
    assert ended(office, canceled) == {"reason": "INVOCATION_CANCELED"}
    assert office.approve(canceled.ticket) is Reason.TICKET_CLOSED


def test_an_mcp_client_waits_for_an_approval_as_a_task_of_its_session(office: Office) -> None:
    """In a session the official client has the types of tasks, and refuses them as results of calls."""
    office.write("by-task")
    session = send(office.mesh, office.token, request("initialize", HELLO)).headers["mcp-session-id"]

    def ask(method: str, **params: Any) -> httpx.Response:
        return send(office.mesh, office.token, request(method, params), mcp_session_id=session)

    call = {"name": "samples__shred_report", "arguments": {"name": "by-task"}, "task": {"ttl": 600_000}}
    created = CreateTaskResult.model_validate(ask("tools/call", **call).json()["result"]).task
    shown = GetTaskResult.model_validate(ask("tasks/get", taskId=created.task_id).json()["result"])
    assert (shown.status, shown.task_id) == ("working", created.task_id)
    (ticket,) = [word for word in (shown.status_message or "").split() if word.startswith("tickets/")]
    assert office.approve(ticket) is None
    waited = ask("tasks/result", taskId=created.task_id).text
    (last,) = [line for line in waited.splitlines() if '"result"' in line]
    # The report was still there, so nothing ran before.
    assert json.loads(last.removeprefix("data: "))["result"]["structuredContent"] == {"removed": True}


async def test_the_official_client_waits_for_an_approval_as_a_task(office: Office) -> None:
    report = f"extension-{new_id()}"
    office.write(report)
    approved: list[str] = []

    def approve(state: TaskState) -> None:
        tickets = [word for word in state.status_message.split() if word.startswith("tickets/")]
        for ticket in tickets if not approved else []:
            assert office.approve(ticket) is None
            approved.append(ticket)

    async with client_of(office.mesh, office.token, NEW, extensions=[Tasks(approve)]) as client:
        answer = await client.call_tool("samples__shred_report", {"name": report})
    assert len(approved) == 1
    # The report was still there, so nothing ran before.
    assert answer.structured_content == {"removed": True}


def test_each_wrong_use_of_a_ticket_has_its_own_reason(office: Office, tmp_path: Path) -> None:
    mesh, eve = office.mesh, office.mesh.token(sub=EVE, trust="90")
    own = mesh.token(sub=ALICE, scopes="approvals:decide", groups="approvers")

    def ticket_for(name: str, **request: Any) -> str:
        refused = office.call(name, **request)
        assert refused["reason"] == "APPROVAL_REQUIRED"
        return str(refused["ticket"])

    first = ticket_for("first")
    assert office.approve(first, own) is Reason.SELF_APPROVAL
    assert office.approve(first, mesh.token(sub=BOB, scopes="approvals:decide")) is Reason.APPROVER_NOT_ELIGIBLE
    assert office.approve(first) is None
    assert office.call("second", first)["reason"] == "TICKET_ARGUMENTS_CHANGED"
    assert office.call("first", first, token=eve)["reason"] == "TICKET_CALLER_MISMATCH"

    denied = ticket_for("denied")
    stub = rpc.ApprovalServiceStub(office.edge)
    deny = pb.DenyTicketRequest(name=denied, reason="no")
    stub.DenyTicket(deny, metadata=bearer(office.approver), timeout=30)
    assert office.approve(denied) is Reason.TICKET_CLOSED
    assert office.call("denied", denied)["reason"] == "APPROVAL_REJECTED"

    # The token that asked is revoked; another one of the same person does not get the approval.
    asking = mesh.token(sub=ALICE, trust="90")
    revoked = ticket_for("revoked", token=asking)
    assert office.approve(revoked) is None
    cli("token", "revoke", asking, state=mesh.state)
    assert office.call("revoked", revoked)["reason"] == "TICKET_TOKEN_REVOKED"

    assert office.call("revoked")["ticket"] != revoked
    # The same holds for the token that approved.
    approving = mesh.token(sub=BOB, scopes="approvals:decide", groups="approvers")
    unfounded = ticket_for("unfounded")
    assert office.approve(unfounded, approving) is None
    cli("token", "revoke", approving, state=mesh.state)
    assert office.call("unfounded", unfounded)["reason"] == "TICKET_APPROVER_REVOKED"

    register(mesh, tmp_path, "1.1.0")
    wait_until(lambda: office.call("newest", version="1.1.0")["reason"] == "APPROVAL_REQUIRED", "the new version")
    assert office.call("first", first)["reason"] == "TICKET_TOOL_CHANGED"
    assert office.call("first", first, version="1.0.0") == {"removed": False}

    changed = ticket_for("changed")
    assert office.approve(changed) is None
    rules = tmp_path / "rules.cedar"
    rules.write_text(OTHER_RULE)
    put = json.loads(cli("policy", "put", str(rules), "--json", state=mesh.state).stdout)
    cli("policy", "activate", put["policy_set"]["name"], state=mesh.state)
    assert office.call("changed", changed)["reason"] == "TICKET_POLICY_CHANGED"

    acts = json.loads(cli("audit", "acts", "tickets", "-n", "500", "--json", state=mesh.state).stdout)["records"]
    refusals = {act["record"]["act"]["reason"] for act in acts if act["record"]["event_class"] == "ticket_refused"}
    assert refusals >= {
        *("SELF_APPROVAL", "APPROVER_NOT_ELIGIBLE", "TICKET_ARGUMENTS_CHANGED", "TICKET_CALLER_MISMATCH"),
        *("TICKET_CLOSED", "APPROVAL_REJECTED", "TICKET_TOKEN_REVOKED", "TICKET_TOOL_CHANGED"),
        *("TICKET_POLICY_CHANGED", "TICKET_REDEEMED", "TICKET_APPROVER_REVOKED"),
    }
