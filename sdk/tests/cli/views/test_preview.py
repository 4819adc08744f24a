"""`toolmesh call --preview` and what goes along with a call since: preview tokens, priorities, steps, remarks."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb
from toolmesh.registry.v1 import registry_service_pb2, tool_version_pb2
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb
from toolmesh_sdk import Reason, derive_idempotency_key

from libs.common.errors import MeshError
from sdk.tests.executor_samples import PREVIEW, envelope


def test_a_preview_tells_a_person_everything_and_calls_nothing(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("PreviewInvocation", PREVIEW)
    ran = toolmesh("call", "acme.wipe", '{"a": 1}', "--preview", "--session", "s-1", "--version", "^1", "--key", "k")
    assert ran.exit_code == 0
    wanted = ("acme.wipe@1.0.0", "delete", "file:a.md", "it is there", "it is free", "One file would be gone.")
    assert all(words in ran.stdout for words in (*wanted, "18446744073709551615", "--preview-token shown-1"))
    assert mesh.of("Invoke") == []
    request = mesh.of("PreviewInvocation")[0].request.request
    assert (request.tool, request.arguments, request.version) == ("acme.wipe", b'{"a":1}', "^1")
    assert (request.session_id, request.idempotency_key) == ("s-1", "")


def test_a_preview_as_json_is_one_document(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("PreviewInvocation", PREVIEW)
    ran = toolmesh("call", "acme.wipe", "--preview", "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    document = json.loads(ran.stdout)
    shown = {"resource": "file:a.md", "operation": "delete", "source": "reported"}
    assert document["changes"] == [{**shown, "digest_before": "", "digest_after": ""}]
    assert [each["holds"] for each in document["preconditions"]] == [True, False]
    assert (document["predicted_result"], document["approval_required"]) == ({"n": 2**64 - 1}, True)
    assert (document["preview_token"], document["expire_time"]) == ("shown-1", "2027-01-15T08:00:00+00:00")


def test_a_result_that_is_left_out_is_spoken_of(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("PreviewInvocation", pb.PreviewInvocationResponse(result_left_out="needs_approval"))
    assert "predicted result" in toolmesh("call", "acme.wipe", "--preview").stdout
    document = json.loads(toolmesh("call", "acme.wipe", "--preview", "--json").stdout)
    assert (document["predicted_result"], document["result_left_out"]) == (None, "needs_approval")


def manifest(mutation: Any, **idempotency: Any) -> Any:
    said = {"idempotency": mpb.Idempotency(**idempotency)} if idempotency else {}
    version = tool_version_pb2.ToolVersion(manifest=mpb.ToolManifest(mutation_class=mutation, **said))
    return registry_service_pb2.ResolveToolResponse(version=version)


WRITES = manifest(mpb.MUTATION_CLASS_WRITE_REVERSIBLE)
ASKS = manifest(mpb.MUTATION_CLASS_READ_ONLY, mode=mpb.IDEMPOTENCY_MODE_KEY_REQUIRED)
NATURAL = manifest(mpb.MUTATION_CLASS_WRITE_REVERSIBLE, mode=mpb.IDEMPOTENCY_MODE_NATURAL)


@pytest.mark.parametrize(
    ("found", "given", "shown"),
    [
        (WRITES, [], "--key KEY --preview-token"),
        (ASKS, [], "--key KEY --preview-token"),
        (NATURAL, [], None),
        (MeshError(Reason.PERMISSION_DENIED), [], None),
        (NATURAL, ["--key", "k 1"], "--key 'k 1' --preview-token"),
    ],
)
def test_a_preview_shows_the_key_that_the_call_will_need(
    toolmesh: Any, mesh: Any, found: Any, given: list[str], shown: str | None
) -> None:
    mesh.answer("PreviewInvocation", PREVIEW)
    mesh.answer("ResolveTool", found)
    ran = toolmesh("call", "acme.wipe", "--preview", *given)
    assert ran.exit_code == 0
    assert (shown in ran.stdout) if shown else ("--key" not in ran.stdout)


def test_a_preview_promises_nothing_where_a_person_would_have_to_approve(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("PreviewInvocation", PREVIEW)
    refused = toolmesh("call", "acme.wipe", "--preview").stdout
    free = pb.PreviewInvocationResponse()
    free.CopyFrom(PREVIEW)
    free.approval_required = False
    mesh.answer("PreviewInvocation", free)
    allowed = toolmesh("call", "acme.wipe", "--preview").stdout
    assert ("To do it" in allowed, "To do it" in refused, "refused" in refused) == (True, False, True)


def test_a_preview_fails_like_the_call(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("PreviewInvocation", MeshError(Reason.PERMISSION_DENIED))
    assert toolmesh("call", "acme.wipe", "--preview").exit_code == 4


def test_a_required_preview_is_explained_with_command_line_options(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", MeshError(Reason.PREVIEW_REQUIRED))
    assert "--preview" in toolmesh("call", "acme.wipe").stderr


def test_token_and_priority_go_along_with_the_call(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", pb.InvokeResponse(result=envelope({})))
    assert toolmesh("call", "acme.wipe", "--preview-token", "shown-1", "--priority", "7").exit_code == 0
    request = mesh.of("Invoke")[0].request
    assert (request.preview_token, request.priority) == ("shown-1", 7)


def test_a_step_has_the_key_that_every_process_derives(
    toolmesh: Any, mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMESH_KEY_SECRET", "secret")
    mesh.answer("Invoke", pb.InvokeResponse(result=envelope({})))
    for way in ("edge", "direct"):
        toolmesh("call", "pay", '{"cents": 5}', "--step", "3", "--session", "s-1", "--via", way)
    expected = derive_idempotency_key("secret", "s-1", "pay", "3", {"cents": 5})
    assert [call.request.idempotency_key for call in mesh.of("Invoke")] == [expected] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--step", "3", "--session", "s"],
        ["--step", "3", "--key-secret", "x"],
        ["--step", "3", "--key-secret", "x", "--session", "s", "--key", "k"],
        ["--priority", "11"],
        ["--max-bytes", "-1"],
    ],
)
def test_invalid_input_is_a_usage_error_and_makes_no_call(
    toolmesh: Any, mesh: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.delenv("TOOLMESH_KEY_SECRET", raising=False)
    ran = toolmesh("call", "pay", *arguments)
    assert (ran.exit_code, ran.stdout, mesh.of("Invoke")) == (2, "", [])


CHANGED = envelope(
    {},
    effects=[epb.ObservedEffect(resource="file:a.md", operation="create", source=epb.EFFECT_SOURCE_OBSERVED)],
    compensation=epb.Compensation(tool="tools/acme.undo", arguments=b'{"id": "it\'s"}'),
    argument_changes=[
        epb.ArgumentChange(path="/n", source="coercion", reason="integer"),
        epb.ArgumentChange(path="/filled", source="default"),
    ],
    additional_context=["mind the \x1b[31mgap"],
)


def test_remarks_are_on_stderr_and_do_not_touch_the_terminal(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", pb.InvokeResponse(result=CHANGED))
    ran = toolmesh("call", "acme.write")
    assert json.loads(ran.stdout) == {}
    assert all(words in ran.stderr for words in ("create file:a.md", "/n", "coercion", "mind the", "acme.undo"))
    assert "/filled" not in ran.stderr
    [undo] = [shlex.split(line) for line in ran.stderr.splitlines() if "acme.undo" in line]
    assert undo[-6:] == ["toolmesh", "call", "acme.undo", '{"id": "it\'s"}', "--key", f"undo-{CHANGED.invocation_id}"]
    assert "\x1b" not in ran.stderr


def test_as_json_the_remarks_are_in_the_document(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", pb.InvokeResponse(result=CHANGED))
    ran = toolmesh("call", "acme.write", "--json")
    document = json.loads(ran.stdout)
    assert ran.stderr == ""
    shown = {"resource": "file:a.md", "operation": "create", "source": "observed"}
    assert document["effects"] == [{**shown, "digest_before": "", "digest_after": ""}]
    assert document["compensation"] == {"tool": "tools/acme.undo", "arguments": {"id": "it's"}}
    assert [change["source"] for change in document["argument_changes"]] == ["coercion", "default"]
    assert document["additional_context"] == ["mind the \x1b[31mgap"]


def test_a_stale_result_is_marked_with_its_age(toolmesh: Any, mesh: Any) -> None:
    stale = envelope({"n": 1}, provenance=epb.Provenance(source=epb.RESULT_SOURCE_STALE_CACHE))
    stale.provenance.retrieve_time.FromJsonString("2027-01-15T08:00:00Z")
    mesh.answer("Invoke", pb.InvokeResponse(result=stale))
    ran = toolmesh("call", "acme.read")
    assert "2027-01-15T08:00:00Z" in ran.stderr
    assert json.loads(toolmesh("call", "acme.read", "--json").stdout)["source"] == "stale_cache"
