"""`toolmesh call`: arguments in, result out, and an exit code that a script can trust."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import executor_service_pb2, result_envelope_pb2
from toolmesh_sdk import Reason
from toolmesh_sdk.cli.commands.calls.call import read_arguments
from toolmesh_sdk.cli.inputs.target import LOCAL_USER

from libs.common.errors import MeshError, Violation


def done(content: Any, **fields: Any) -> Any:
    envelope = result_envelope_pb2.ResultEnvelope(
        status=result_envelope_pb2.RESULT_STATUS_SUCCEEDED,
        structured_content=json.dumps(content, ensure_ascii=False).encode(),
        invocation_id="inv-1",
        **fields,
    )
    return executor_service_pb2.InvokeResponse(result=envelope)


def test_the_result_is_printed_and_the_call_is_made_for_the_local_user(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done({"text": "grüße 🙂", "n": 2**64 - 1}))
    ran = toolmesh("call", "echo", '{"text": "hi"}', "--version", "^1", "--key", "k-1", "--session", "s-1")
    assert ran.exit_code == 0
    assert json.loads(ran.stdout) == {"text": "grüße 🙂", "n": 2**64 - 1}
    assert "grüße 🙂" in ran.stdout
    request = mesh.of("Invoke")[0].request
    assert (request.tool, request.arguments, request.version) == ("echo", b'{"text":"hi"}', "^1")
    assert (request.idempotency_key, request.session_id) == ("k-1", "s-1")
    asked = mesh.of("IssueToken")[0].request
    assert (asked.subject, asked.lifetime.seconds) == (LOCAL_USER, 300)
    assert mesh.of("Invoke")[0].metadata["authorization"].startswith("Bearer ")


def test_as_json_everything_about_the_result_is_one_document(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done([1], replayed=True, trace_id="t"))
    ran = toolmesh("call", "echo", "--json")
    document = json.loads(ran.stdout)
    assert (document["content"], document["replayed"], document["invocation_id"]) == ([1], True, "inv-1")
    assert {"tool_version", "digest", "trace_id", "duration_seconds", "phases", "deprecation"} <= set(document)
    assert ran.stderr == ""


def test_a_large_result_is_printed_whole_and_unbroken(toolmesh: Any, mesh: Any) -> None:
    text = "wide " * 100_000
    mesh.answer("Invoke", done({"text": text}))
    assert json.loads(toolmesh("call", "echo").stdout) == {"text": text}


def test_warnings_go_to_stderr(toolmesh: Any, mesh: Any) -> None:
    notice = result_envelope_pb2.DeprecationNotice(
        sunset_time=Timestamp(seconds=1_800_000_000),
        successor="tools/core.echo/versions/2.0.0",
        migration_guide_url="https://example.com/move",
    )
    stored = result_envelope_pb2.PersistedResult(ref="results/1", size_bytes=5)
    alike = result_envelope_pb2.CallWarning(message="easily taken for tools/acme.x")
    mesh.answer("Invoke", done({}, deprecation=notice, persisted=[stored], warnings=[alike]))
    ran = toolmesh("call", "echo")
    assert json.loads(ran.stdout) == {}
    assert all(words in ran.stderr for words in ("tools/core.echo/versions/2.0.0", "2027-01-15", "example.com/move"))
    assert "results/1" in ran.stderr
    assert "warning: easily taken for tools/acme.x" in ran.stderr


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (MeshError(Reason.EXECUTION_FAILED), 1),
        (MeshError(Reason.APPROVAL_REQUIRED), 1),
        (grpc.StatusCode.UNAVAILABLE, 3),
        (MeshError(Reason.PERMISSION_DENIED), 4),
        (grpc.StatusCode.UNAUTHENTICATED, 4),
        (MeshError(Reason.TOOL_TIMEOUT, retry_after=90), 5),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 5),
    ],
)
def test_a_failure_has_its_exit_code_and_its_envelope(toolmesh: Any, mesh: Any, failure: Any, code: int) -> None:
    mesh.answer("Invoke", failure)
    for_people, for_machines = toolmesh("call", "echo"), toolmesh("call", "echo", "--json")
    assert (for_people.exit_code, for_people.stdout) == (code, "")
    assert (for_machines.exit_code, for_machines.stderr) == (code, "")
    error = json.loads(for_machines.stdout)["error"]
    assert error["reason"] in for_people.stderr
    assert error["resolution"]


def test_a_failure_names_everything_a_person_can_mend(toolmesh: Any, mesh: Any) -> None:
    broken = [Violation("/text", "type", "text is needed"), Violation("/n", "maximum", "at most 5")]
    mesh.answer("Invoke", MeshError(Reason.ARGUMENTS_INVALID, violations=broken, invocation_id="inv-9"))
    ran = toolmesh("call", "echo")
    assert all(word in ran.stderr for word in ("/text", "type", "/n", "maximum", "inv-9", "E3301"))


def test_a_missing_key_is_explained_with_command_line_options(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", MeshError(Reason.IDEMPOTENCY_KEY_REQUIRED))
    assert "--key" in toolmesh("call", "pay").stderr


def test_the_way_straight_to_the_executor_is_the_orchestrators(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done({}))
    assert toolmesh("call", "echo", "--via", "direct").exit_code == 0
    call = mesh.of("Invoke")[0]
    assert "spiffe://toolmesh.local/orchestrator" in call.peer
    assert call.metadata["authorization"].startswith("Bearer ")


def test_a_given_token_is_used_and_none_is_minted(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done({}))
    toolmesh("call", "echo", "--token", "mine")
    assert mesh.of("Invoke")[0].metadata["authorization"] == "Bearer mine"
    assert mesh.of("IssueToken") == []


@pytest.mark.parametrize("way", ["edge", "direct"])
@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_token_is_a_usage_error(toolmesh: Any, mesh: Any, way: str, empty: str) -> None:
    ran = toolmesh("call", "echo", "--token", empty, "--via", way)
    assert (ran.exit_code, ran.stdout, mesh.seen) == (2, "", [])
    assert "--token" in ran.stderr


@pytest.mark.parametrize(
    "command", [("call", "echo"), ("tools", "disable", "echo", "-r", "why"), ("token", "revoke", "id")]
)
def test_an_empty_variable_is_an_empty_token(
    toolmesh: Any, mesh: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TOOLMESH_TOKEN", "")
    ran = toolmesh(*command)
    assert (ran.exit_code, mesh.seen) == (2, [])
    assert "TOOLMESH_TOKEN" in ran.stderr


def test_a_token_that_was_given_stands_beside_an_empty_variable(
    toolmesh: Any, mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMESH_TOKEN", "")
    mesh.answer("Invoke", done({}))
    assert toolmesh("call", "echo", "--token", "mine").exit_code == 0
    assert mesh.of("Invoke")[0].metadata["authorization"] == "Bearer mine"


def test_the_number_of_attempts_is_printed(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", MeshError(Reason.TOOL_CRASHED))
    assert "after 4 attempts" in toolmesh("call", "echo", "--key", "k-1").stderr
    mesh.answer("Invoke", MeshError(Reason.ARGUMENTS_INVALID))
    assert "attempts" not in toolmesh("call", "echo").stderr


def test_the_delay_that_an_error_names_is_printed(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", MeshError(Reason.RATE_LIMITED, retry_after=3600.0))
    assert "3600 s" in toolmesh("call", "echo").stderr
    assert json.loads(toolmesh("call", "echo", "--json").stdout)["error"]["retry_after"] == 3600.0


def test_a_token_of_the_local_mesh_is_not_shown_to_another_address(
    toolmesh: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", done({}))
    toolmesh("call", "echo", "--url", f"http://{serve()}")
    assert "authorization" not in mesh.of("Invoke")[0].metadata
    assert mesh.of("IssueToken") == []


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_the_local_meshs_own_address_gets_its_token(toolmesh: Any, mesh: Any, local_mesh: Path, scheme: str) -> None:
    mesh.answer("Invoke", done({}))
    address = json.loads((local_mesh / "runtime.json").read_text())["grpc"]["address"]
    toolmesh("call", "echo", "--url", scheme + address)
    assert "authorization" in mesh.of("Invoke")[0].metadata


@pytest.mark.parametrize(
    "arguments",
    [
        ["call"],
        ["call", "echo", "{"],
        ["call", "echo", "[]"],
        ["call", "echo", '{"a":1,"a":2}'],
        ["call", "echo", "--arg", "novalue"],
        ["call", "echo", "--arg", "text=a", "--arg", "text=b"],
        ["call", "echo", "--via", "sideways"],
        ["call", "echo", "--url", "mesh.example:80"],
        ["call", "echo", "--ca", "/no/such/file"],
        ["call", "echo", "--ca", __file__, "--url", "https://127.0.0.1:1"],
        ["call", "echo", "--timeout", "0"],
        ["call", "echo", "--timeout", "inf"],
        # An unset shell variable must not drop the key or the version of a call.
        *(["call", "echo", f"--{option}", ""] for option in ("key", "step", "session", "version", "digest")),
        ["nosuch"],
    ],
)
def test_a_usage_error_makes_no_call(toolmesh: Any, mesh: Any, arguments: list[str]) -> None:
    ran = toolmesh(*arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert mesh.of("Invoke") == []


def test_no_mesh_is_three_and_says_how_to_start_one(toolmesh: Any, tmp_path: Path) -> None:
    ran = toolmesh("call", "echo", "--state", str(tmp_path / "nothing"))
    assert (ran.exit_code, ran.stdout) == (3, "")
    assert "toolmesh up" in ran.stderr
    ran = toolmesh("call", "echo", "--json", "--state", str(tmp_path / "nothing"))
    assert (ran.exit_code, json.loads(ran.stdout)["error"]["reason"]) == (3, "SERVICE_UNAVAILABLE")


def test_a_mesh_whose_runner_is_gone_does_not_run(toolmesh: Any, local_mesh: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    runtime = json.loads((local_mesh / "runtime.json").read_text())
    (local_mesh / "runtime.json").write_text(json.dumps({**runtime, "runner_pid": gone.pid}))
    assert toolmesh("call", "echo").exit_code == 3


def test_an_unreadable_operator_certificate_asks_for_a_token(toolmesh: Any, local_mesh: Path) -> None:
    runtime = json.loads((local_mesh / "runtime.json").read_text())
    runtime["operator"]["key"] = str(local_mesh / "missing.key")
    (local_mesh / "runtime.json").write_text(json.dumps(runtime))
    ran = toolmesh("call", "echo")
    assert ran.exit_code == 2
    assert "--token" in ran.stderr


def test_arguments_come_from_json_stdin_and_pairs(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done({}))
    toolmesh(
        "call", "echo", "-", "--arg", "n=3", "--arg", "text=a=b", "--arg", 'id="3"', stdin='{"n": 1, "keep": true}'
    )
    expected = {"n": 3, "keep": True, "text": "a=b", "id": "3"}
    assert json.loads(mesh.of("Invoke")[0].request.arguments) == expected


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "[" * 100_000, "9" * 5_000], ids=lambda text: text[:9])
def test_what_is_no_json_is_text(text: str) -> None:
    assert read_arguments("", [f"name={text}"]) == {"name": text}


@pytest.mark.parametrize("arguments", [['{"n": NaN}'], ["--arg", 'o={"a": 1, "a": 2}']], ids=["no number", "key twice"])
def test_arguments_of_which_something_would_be_lost_are_two(toolmesh: Any, mesh: Any, arguments: list[str]) -> None:
    assert toolmesh("call", "echo", *arguments).exit_code == 2
    assert mesh.of("Invoke") == []


@pytest.mark.parametrize(
    "command", [("call", "echo"), ("group",), ("tools", "register"), ("token", "inspect")], ids=" ".join
)
def test_input_that_is_no_text_is_two(toolmesh: Any, command: tuple[str, ...]) -> None:
    assert toolmesh(*command, "-", stdin=b'{"text": "\xff"}').exit_code == 2


def test_integers_of_the_command_line_keep_their_digits() -> None:
    assert read_arguments("", ["n=18446744073709551615"]) == {"n": 2**64 - 1}


def test_the_program_itself_keeps_stdout_for_the_result(local_mesh: Path, mesh: Any) -> None:
    mesh.answer("Invoke", done({"text": "grüße"}), MeshError(Reason.SCOPE_MISSING))
    argv = [sys.executable, "-m", "toolmesh_sdk", "call", "echo", "--state", str(local_mesh)]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}

    def run() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False)

    good, refused = run(), run()
    assert (good.returncode, json.loads(good.stdout), good.stderr) == (0, {"text": "grüße"}, b"")
    assert (refused.returncode, refused.stdout) == (4, b"")
    assert b"SCOPE_MISSING" in refused.stderr
    assert b"Traceback" not in refused.stderr
