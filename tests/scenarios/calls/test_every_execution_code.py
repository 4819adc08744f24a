"""Every way in which a call can fail by its arguments, its run or its result, E3301 to E3415, and by the word of
approvers, E3211: through
the edge of a running mesh, in real sandboxes, and each on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc
from toolmesh.audit.v1.audit_record_pb2 import AuditRecord
from toolmesh.common.v1.error_table import ROWS

from libs.common.errors import Reason
from libs.common.ids import new_id
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from tests.harness.executors.failing import NAMESPACE, failing_mesh
from tests.harness.mesh import Mesh
from tests.harness.stores import wait_until

# More than the redaction examines.
TOO_LONG = 300_000
MIB = 1 << 20


@dataclass
class Caller:
    """A caller that may call everything, and whose calls fail."""

    mesh: Mesh
    edge: grpc.Channel
    notes: Path
    token: str
    answered: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of all answers, the latest last."""

    def call(self, tool: str, method: str = "tools.invoke", *, key: str = "", **arguments: Any) -> dict[str, Any]:
        """Call a tool of the pack; return what went wrong, or nothing."""
        params = {"tool": f"{NAMESPACE}.{tool}", "arguments": arguments, **({"idempotency_key": key} if key else {})}
        return self.ask(method, params)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Call a method; return what went wrong, or nothing."""
        self.answered.append(self.mesh.rpc(method, params, token=self.token).json())
        error = self.answered[-1].get("error")
        if error is None:
            return {}
        failure: dict[str, Any] = error["data"]
        assert error["code"] == ROWS[Reason[failure["reason"]]].jsonrpc_code
        return failure

    def group(self, *calls: dict[str, Any]) -> list[dict[str, Any]]:
        """Call a group; return what went wrong with each, or nothing for those that are well."""
        named = [{**call, "tool": f"{NAMESPACE}.{call['tool']}"} for call in calls]
        assert self.ask("tools.invoke_group", {"calls": named}) == {}
        return [outcome.get("error") or {} for outcome in self.answered[-1]["result"]["outcomes"]]

    def records(self, invocation: str) -> list[AuditRecord]:
        """Return what the log knows about an invocation, oldest first."""
        asked = audit_pb.QueryRecordsRequest(filter=audit_pb.RecordFilter(invocation_id=invocation), ascending=True)
        metadata = (("authorization", f"Bearer {self.token}"),)
        answer = audit_rpc.AuditServiceStub(self.edge).QueryRecords(asked, metadata=metadata, timeout=15)
        return [logged.record for logged in answer.records]

    def state_of(self, tool: str) -> str:
        """Return the state of the tool's only version, as the registry says it."""
        assert self.ask("tools.get", {"tool": f"{NAMESPACE}.{tool}"}) == {}
        (version,) = self.answered[-1]["result"]["versions"]
        return str(version["state"])


def unconfined() -> str:
    """Why nothing can be confined on this machine; empty if it can."""
    bubblewrap = BubblewrapSandbox(new_id())
    try:
        return bubblewrap.unavailable_reason()
    finally:
        asyncio.run(bubblewrap.close())


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A mesh of this module's own, because its tools would disturb other tests."""
    if why := unconfined():
        pytest.skip(f"no bubblewrap here: {why}")
    folder = tmp_path_factory.mktemp("failing")
    with failing_mesh(folder) as mesh, mesh.edge_channel() as edge:
        # Policy lets the trusted change what can be undone.
        caller = Caller(mesh, edge, folder / "notes", mesh.token(tools=f"{NAMESPACE}.*", trust="80"))
        # It was registered last, so an executor that knows it knows them all.
        wait_until(lambda: caller.call("fine") == {}, "the executor's view of the tools")
        yield caller


def conflict(caller: Caller) -> dict[str, Any]:
    key = new_id()
    assert caller.call("books", key=key, name="a") == {}
    return caller.call("books", key=key, name="b")


def unknown_outcome(caller: Caller) -> dict[str, Any]:
    key = new_id()
    first = caller.call("books_late", key=key, name="a")
    assert (first["reason"], first["retryable"], first["metadata"]["effect"]) == ("TOOL_TIMEOUT", False, "unknown")
    again = caller.call("books_late", key=key, name="a")
    assert again["metadata"]["first_invocation"] == first["invocation_id"]
    return again


def stopped_by_a_sibling(caller: Caller) -> dict[str, Any]:
    failing = {"tool": "fails", "on_failure": "cancel_siblings"}
    stopped, failed = caller.group({"tool": "waits"}, failing)
    assert failed["code"] == "E3401"
    return stopped


def never_begun(caller: Caller) -> dict[str, Any]:
    failed, waiting = caller.group({"tool": "fails"}, {"tool": "fine", "depends_on": [0]})
    assert failed["code"] == "E3401"
    return waiting


Fail = Callable[[Caller], dict[str, Any]]
CASES: list[tuple[Reason, str, Fail]] = [
    (Reason.ARGUMENTS_INVALID, "type", lambda c: c.call("fine", count="many")),
    (Reason.ARGUMENTS_INVALID, "undeclared", lambda c: c.call("fine", more=1)),
    (Reason.COERCION_FAILED, "fraction", lambda c: c.call("fine", count="42.5")),
    (Reason.RESULT_INVALID, "schema", lambda c: c.call("strict")),
    (Reason.RESULT_INVALID, "no JSON", lambda c: c.call("goes_wrong", way="words")),
    (Reason.SANITIZATION_FAILED, "too long", lambda c: c.call("long_letter", characters=TOO_LONG)),
    (Reason.INJECTION_DETECTED, "path", lambda c: c.call("opens", path="../../etc/passwd")),
    (Reason.INJECTION_DETECTED, "option", lambda c: c.call("goes_wrong", way="--help")),
    (Reason.HOOK_BLOCKED, "stopped", lambda c: c.call("hooked")),
    (Reason.APPROVAL_REJECTED, "freeze", lambda c: c.call("frozen")),
    (Reason.PREVIEW_REQUIRED, "none", lambda c: c.call("previewed")),
    (Reason.EXECUTION_FAILED, "said", lambda c: c.call("fails")),
    (Reason.EXECUTION_FAILED, "raised", lambda c: c.call("raises")),
    (Reason.EXECUTION_FAILED, "exit", lambda c: c.call("goes_wrong", way="exit")),
    (Reason.TOOL_TIMEOUT, "waits", lambda c: c.call("late")),
    (Reason.TOOL_OUT_OF_MEMORY, "function", lambda c: c.call("devours")),
    (Reason.TOOL_OUT_OF_MEMORY, "program", lambda c: c.call("goes_wrong", way="memory")),
    (Reason.TOOL_CRASHED, "left", lambda c: c.call("leaves")),
    (Reason.TOOL_CRASHED, "signal", lambda c: c.call("goes_wrong", way="signal")),
    (Reason.SANDBOX_NOT_READY, "loads", lambda c: c.call("never_loads")),
    (Reason.SANDBOX_UNAVAILABLE, "machine", lambda c: c.call("needs_machine")),
    (Reason.SANDBOX_UNAVAILABLE, "kernel", lambda c: c.call("needs_kernel")),
    (Reason.NETWORK_POLICY_VIOLATION, "host", lambda c: c.call("calls_out", host="b.example")),
    (Reason.RESOURCE_LIMIT_EXCEEDED, "processes", lambda c: c.call("goes_wrong", way="processes")),
    (Reason.RESOURCE_LIMIT_EXCEEDED, "file size", lambda c: c.call("goes_wrong", way="file_size")),
    (Reason.RESOURCE_LIMIT_EXCEEDED, "scratch", lambda c: c.call("keeps_notes", key=new_id(), name="big", files=8)),
    (Reason.IDEMPOTENCY_CONFLICT, "arguments", conflict),
    (Reason.IDEMPOTENCY_KEY_REQUIRED, "none", lambda c: c.call("books", name="a")),
    (Reason.UNKNOWN_OUTCOME, "timeout", unknown_outcome),
    (Reason.RESULT_TOO_LARGE, "opted out", lambda c: c.call("curt", characters=2000)),
    (Reason.SIBLING_CANCELED, "stopped", stopped_by_a_sibling),
    (Reason.SIBLING_CANCELED, "never begun", never_begun),
    (Reason.STREAM_DISCARDED, "second part", lambda c: c.call("stutters")),
    (Reason.PARTIAL_FAILURE, "said", lambda c: c.call("fails", partial=True)),
    (Reason.SIDE_EFFECT_VIOLATION, "reader", lambda c: c.call("reads_notes", name="read")),
    (Reason.SIDE_EFFECT_VIOLATION, "elsewhere", lambda c: c.call("misplaces_notes", key=new_id(), name="lost")),
    (Reason.SIDE_EFFECT_VIOLATION, "reported", lambda c: c.call("boasts")),
]


@pytest.mark.parametrize(
    ("reason", "fail"),
    [(reason, fail) for reason, _, fail in CASES],
    ids=[f"{ROWS[reason].code}-{how.replace(' ', '-')}" for reason, how, _ in CASES],
)
def test_it_fails_with_its_code_and_is_on_record(caller: Caller, reason: Reason, fail: Fail) -> None:
    failure = fail(caller)
    assert (failure.get("code"), failure.get("reason")) == (ROWS[reason].code, reason.name)
    # The answer comes after the evidence, so there is nothing to wait for.
    records = caller.records(failure["invocation_id"])
    assert [record.error_reason for record in records if record.error_reason] == [reason.value]
    assert records[-1].error_reason == reason.value


def test_no_code_of_execution_is_left_out() -> None:
    execution = {reason for reason in Reason if 3300 < reason.value < 3500}
    assert {reason for reason, _, _ in CASES} == execution | {Reason.APPROVAL_REJECTED}


def test_limits_say_which(caller: Caller) -> None:
    def limit(**way: Any) -> str:
        return str(caller.call(**way)["metadata"]["limit"])

    assert limit(tool="goes_wrong", way="processes") == "processes"
    assert limit(tool="goes_wrong", way="file_size") == "file_size"
    assert limit(tool="keeps_notes", key=new_id(), name="large", files=8) == "scratch"


def test_what_demands_a_preview_runs_after_one(caller: Caller) -> None:
    assert caller.call("previewed", "tools.preview") == {}
    token = caller.answered[-1]["result"]["preview_token"]
    previewed = {"tool": f"{NAMESPACE}.previewed", "arguments": {}, "preview_token": token}
    assert caller.ask("tools.invoke", previewed) == {}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("reads_notes", {"name": "reader"}), ("misplaces_notes", {"key": "again", "name": "writer"}), ("boasts", {})],
)
def test_a_tool_that_broke_its_word_is_out_of_use_everywhere(
    caller: Caller, tool: str, arguments: dict[str, Any]
) -> None:
    # The first call sees the violation, here or above; from then on the tool is refused.
    caller.call(tool, **arguments)
    assert caller.call(tool, **arguments).get("reason") == "TOOL_UNAVAILABLE"
    wait_until(lambda: caller.state_of(tool) == "quarantined", f"the quarantine of {tool}")


def test_only_a_run_that_kept_its_word_changes_the_volume(caller: Caller) -> None:
    assert caller.call("keeps_notes", key=new_id(), name="kept") == {}
    for tool in ("reads_notes", "misplaces_notes"):
        caller.call(tool, key=new_id(), name="lost")
    caller.call("keeps_notes", key=new_id(), name="large", files=8)
    # Without what the mesh keeps there itself.
    files = [file for file in caller.notes.iterdir() if not file.name.startswith(".toolmesh-")]
    found = {file.name: file.stat().st_size for file in files}
    assert found == {"kept-0": MIB}
