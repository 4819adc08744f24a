"""`toolmesh group`: calls from a file, and what became of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh_sdk import Reason, derive_idempotency_key

from libs.common.errors import MeshError
from libs.common.rpc.status import envelope as error_envelope
from sdk.tests.executor_samples import CONTENT, envelope, from_offset, persisted

GOOD = pb.GroupOutcome(result=envelope({"n": 1}))
BAD = pb.GroupOutcome(result=envelope(), error=error_envelope(MeshError(Reason.SIBLING_CANCELED)))
CALLS: list[dict[str, Any]] = [
    {"tool": "echo", "arguments": {"text": "hi"}, "session_id": "own"},
    {"tool": "acme.pay", "step": "2", "depends_on": [0], "on_failure": "ignore", "priority": 3},
]


def write(folder: Path, calls: Any) -> str:
    path = folder / "calls.json"
    path.write_text(calls if isinstance(calls, str) else json.dumps(calls))
    return str(path)


def test_a_file_of_calls_is_one_group(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    mesh.answer("InvokeGroup", pb.InvokeGroupResponse(outcomes=[GOOD, GOOD]))
    ran = toolmesh("group", write(tmp_path, CALLS), "--session", "s-1", "--key-secret", "secret")
    assert ran.exit_code == 0
    assert ran.stdout.count('"n": 1') == 2
    first, second = mesh.of("InvokeGroup")[0].request.calls
    assert (first.request.tool, first.request.arguments, first.request.session_id) == ("echo", b'{"text":"hi"}', "own")
    assert (second.request.session_id, second.request.priority, list(second.depends_on)) == ("s-1", 3, [0])
    assert second.on_failure == pb.SIBLING_FAILURE_IGNORE
    assert second.request.idempotency_key == derive_idempotency_key("secret", "s-1", "acme.pay", "2", None)


def test_a_group_with_one_failure_exits_with_one_and_prints_the_rest(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("InvokeGroup", pb.InvokeGroupResponse(outcomes=[GOOD, BAD]))
    calls = json.dumps([{"tool": "echo"}, {"tool": "acme.pay"}])
    ran = toolmesh("group", "-", stdin=calls)
    assert ran.exit_code == 1
    assert '"n": 1' in ran.stdout
    assert "acme.pay" not in ran.stdout
    assert "SIBLING_CANCELED" in ran.stderr
    ran = toolmesh("group", "-", "--json", stdin=calls)
    good, bad = json.loads(ran.stdout)["outcomes"]
    assert (ran.exit_code, ran.stderr) == (1, "")
    assert (good["tool"], good["result"]["content"]) == ("echo", {"n": 1})
    assert (bad["tool"], bad["error"]["reason"]) == ("acme.pay", "SIBLING_CANCELED")
    assert bad["synthetic"]["content"] is None


def test_stored_results_of_a_group_are_fetched(toolmesh: Any, mesh: Any) -> None:
    outcome = pb.GroupOutcome(result=envelope(persisted=[persisted()]))
    mesh.answer("InvokeGroup", pb.InvokeGroupResponse(outcomes=[outcome]))
    mesh.answer("FetchResult", from_offset())
    ran = toolmesh("group", "-", "--json", stdin='[{"tool": "report"}]')
    assert json.loads(ran.stdout)["outcomes"][0]["result"]["content"] == json.loads(CONTENT)
    mesh.answer("FetchResult", MeshError(Reason.NOT_FOUND))
    assert toolmesh("group", "-", stdin='[{"tool": "report"}]').exit_code == 1


def test_a_failure_of_the_whole_group_is_an_error(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("InvokeGroup", MeshError(Reason.INVALID_REQUEST))
    ran = toolmesh("group", "-", "--json", stdin='[{"tool": "echo"}]')
    assert (ran.exit_code, json.loads(ran.stdout)["error"]["reason"]) == (1, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "calls",
    [
        "{",
        "[]",
        {"tool": "echo"},
        ["echo"],
        [{"arguments": {}}],
        [{"tool": 1}],
        [{"tool": "echo", "colour": "red"}],
        [{"tool": "echo", "arguments": []}],
        [{"tool": "echo", "priority": "3"}],
        [{"tool": "echo", "priority": True}],
        [{"tool": "echo", "priority": 1 << 40}],
        [{"tool": "echo", "depends_on": ["0"]}],
        [{"tool": "echo", "depends_on": [1 << 40]}],
        [{"tool": "echo", "on_failure": "explode"}],
        [{"tool": "echo", "step": "1"}],
        '[{"tool": "echo", "tool": "pay"}]',
    ],
)
def test_invalid_input_is_a_usage_error_and_makes_no_call(toolmesh: Any, mesh: Any, tmp_path: Path, calls: Any) -> None:
    ran = toolmesh("group", write(tmp_path, calls))
    assert (ran.exit_code, ran.stdout, mesh.of("InvokeGroup")) == (2, "", [])


def test_a_file_that_is_not_there_is_two(toolmesh: Any, tmp_path: Path) -> None:
    assert toolmesh("group", str(tmp_path / "nothing.json")).exit_code == 2
