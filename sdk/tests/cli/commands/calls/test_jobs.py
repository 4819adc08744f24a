"""`toolmesh jobs` and `toolmesh call --detach`: what is asked of the mesh, and what is shown."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh_sdk import Reason

from libs.common.errors import MeshError
from libs.common.rpc.status import envelope as error_envelope
from sdk.tests.executor_samples import envelope

NAME = "invocations/00000000-0000-0000-0000-000000000001"
RUNNING = ipb.Invocation(name=NAME, tool_version="tools/core.echo/versions/1.0.0", state=ipb.INVOCATION_STATE_RUNNING)
ENDED = ipb.Invocation(
    name=NAME, state=ipb.INVOCATION_STATE_SUCCEEDED, end_time=Timestamp(seconds=1), result=envelope({"n": 1})
)


def test_a_detached_call_prints_its_name(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("StartInvocation", pb.StartInvocationResponse(invocation=RUNNING))
    ran = toolmesh("call", "echo", '{"text":"a"}', "--key", "k", "--detach")
    assert (ran.exit_code, ran.stdout.strip()) == (0, NAME)
    [asked] = mesh.of("StartInvocation")
    assert (asked.request.request.tool, asked.request.request.idempotency_key) == ("echo", "k")
    assert toolmesh("call", "echo", "{}", "--detach", "--preview").exit_code == 2


def test_a_detached_call_that_waits_for_a_person_says_how_to_approve_it(toolmesh: Any, mesh: Any) -> None:
    waiting = ipb.Invocation(name=NAME, state=ipb.INVOCATION_STATE_AWAITING_APPROVAL, ticket="tickets/t1")
    mesh.answer("StartInvocation", pb.StartInvocationResponse(invocation=waiting))
    ran = toolmesh("call", "echo", "{}", "--key", "k", "--detach")
    assert (ran.exit_code, ran.stdout.strip()) == (0, NAME)
    assert "toolmesh approvals approve tickets/t1" in ran.stderr
    ran = toolmesh("call", "echo", "{}", "--key", "k", "--detach", "--json")
    assert json.loads(ran.stdout) == {"name": NAME, "ticket": "tickets/t1"}


def test_jobs_are_listed_and_shown(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListInvocations", pb.ListInvocationsResponse(invocations=[RUNNING]))
    ran = toolmesh("jobs", "list", "--in-state", "running", "--tool", "echo")
    assert (ran.exit_code, NAME in ran.stdout, "core.echo@1.0.0" in ran.stdout) == (0, True, True)
    assert list(mesh.of("ListInvocations")[0].request.states) == [ipb.INVOCATION_STATE_RUNNING]
    assert toolmesh("jobs", "list", "--in-state", "lost").exit_code == 2
    mesh.answer("GetInvocation", pb.GetInvocationResponse(invocation=RUNNING))
    assert json.loads(toolmesh("jobs", "show", NAME, "--json").stdout)["invocation"]["name"] == NAME
    assert "running" in toolmesh("jobs", "show", NAME).stdout


def test_a_wait_prints_the_result_or_fails_as_the_call_did(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("WaitInvocation", pb.WaitInvocationResponse(invocation=ENDED))
    assert json.loads(toolmesh("jobs", "wait", NAME, "--json").stdout)["content"] == {"n": 1}
    failed = ipb.Invocation(
        name=NAME, end_time=Timestamp(seconds=1), error=error_envelope(MeshError(Reason.TOOL_TIMEOUT))
    )
    mesh.answer("WaitInvocation", pb.WaitInvocationResponse(invocation=failed))
    assert toolmesh("jobs", "wait", NAME).exit_code not in (0, 2)


def test_a_watch_prints_every_event_and_a_cancellation_is_asked_for(toolmesh: Any, mesh: Any) -> None:
    moved = ipb.StateTransition(state=ipb.INVOCATION_STATE_RUNNING)
    events = [
        pb.WatchInvocationResponse(event=ipb.InvocationEvent(sequence=1, transition=moved)),
        pb.WatchInvocationResponse(heartbeat=Timestamp(seconds=1)),
        pb.WatchInvocationResponse(event=ipb.InvocationEvent(sequence=2, ended=ENDED)),
    ]
    mesh.answer("WatchInvocation", events)
    ran = toolmesh("jobs", "watch", NAME)
    assert (ran.exit_code, ran.stdout.count("\n")) == (0, 2)
    assert ("running" in ran.stdout, "succeeded" in ran.stdout) == (True, True)
    mesh.answer("CancelInvocation", pb.CancelInvocationResponse(invocation=RUNNING))
    assert toolmesh("jobs", "cancel", NAME).exit_code == 0
    assert mesh.of("CancelInvocation")[0].request.name == NAME


def test_a_question_is_answered_by_name(toolmesh: Any, mesh: Any) -> None:
    waiting = ipb.Invocation(name=NAME, input_request=ipb.InputRequest(input_id="q", message="How many?"))
    mesh.answer("GetInvocation", pb.GetInvocationResponse(invocation=waiting))
    mesh.answer("ResumeInvocation", pb.ResumeInvocationResponse(invocation=RUNNING))
    assert toolmesh("jobs", "resume", NAME, "--input", '{"n": 3}').exit_code == 0
    [asked] = mesh.of("ResumeInvocation")
    assert (asked.request.input.input_id, asked.request.input.content) == ("q", b'{"n":3}')
    assert "How many?" in toolmesh("jobs", "show", NAME).stdout
    assert toolmesh("jobs", "resume", NAME, "--input", "{").exit_code == 2
    mesh.answer("GetInvocation", pb.GetInvocationResponse(invocation=RUNNING))
    assert toolmesh("jobs", "resume", NAME, "--input", "1").exit_code == 2


def test_an_ended_invocation_is_resumed_from_a_checkpoint(toolmesh: Any, mesh: Any) -> None:
    made = ipb.Checkpoint(name=f"{NAME}/checkpoints/7", number=7, kind=ipb.CHECKPOINT_KIND_NAMED, label="half-way")
    mesh.answer("ListCheckpoints", pb.ListCheckpointsResponse(checkpoints=[made]))
    shown = toolmesh("jobs", "checkpoints", NAME).stdout
    assert all(words in shown for words in ("7", "named", "half-way"))
    mesh.answer("ResumeInvocation", pb.ResumeInvocationResponse(invocation=RUNNING))
    mesh.answer("GetInvocation", pb.GetInvocationResponse(invocation=RUNNING))
    for arguments in ((), ("--checkpoint", "7"), ("--checkpoint", made.name)):
        assert toolmesh("jobs", "resume", NAME, *arguments).exit_code == 0
    assert [each.request.checkpoint.name for each in mesh.of("ResumeInvocation")] == ["", made.name, made.name]
    assert toolmesh("jobs", "resume", NAME, "--checkpoint", "7", "--input", "1").exit_code == 2


def test_a_watch_shows_what_the_tool_reports(toolmesh: Any, mesh: Any) -> None:
    reports = [
        ipb.InvocationEvent(
            sequence=1, progress=ipb.Progress(percent=50, current_step=1, total_steps=2, message="half")
        ),
        ipb.InvocationEvent(
            sequence=2, log_message=ipb.LogMessage(severity=ipb.LOG_SEVERITY_WARNING, text="slow\x1b[2J")
        ),
        ipb.InvocationEvent(sequence=3, partial_result=ipb.PartialResult(content=b'{"a":1}')),
        ipb.InvocationEvent(sequence=4, input_request=ipb.InputRequest(message="How many?")),
        ipb.InvocationEvent(sequence=5, checkpoint=ipb.Checkpoint(number=2, label="halfway")),
        ipb.InvocationEvent(sequence=6, ended=ENDED),
    ]
    mesh.answer("WatchInvocation", [pb.WatchInvocationResponse(event=event) for event in reports])
    shown = toolmesh("jobs", "watch", NAME).stdout
    for words in ("50 %  step 1 of 2  half", "warning: slow", '{"a": 1}', "asks: How many?", "checkpoint 2 halfway"):
        assert words in shown
    assert "\x1b" not in shown
