"""`toolmesh call --debug`: the log of the call beside its result or error, for readers who may see it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.executor.v1 import tool_log_service_pb2 as pb
from toolmesh_sdk import Reason
from toolmesh_sdk.cli.commands.calls import debug

from libs.common.errors import MeshError
from sdk.tests.cli.commands.calls.test_call import done
from sdk.tests.cli.commands.tools.test_logs import a_log


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "_PAUSE_SECONDS", 0.0)


def test_the_log_follows_the_result_on_stderr(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done({"n": 1}))
    mesh.answer("ListToolLogs", pb.ListToolLogsResponse(), pb.ListToolLogsResponse(logs=[a_log("inv-1", "a line")]))
    ran = toolmesh("call", "echo", "--debug")
    assert json.loads(ran.stdout) == {"n": 1}
    assert "a line" in ran.stderr
    assert [call.request.invocation_id for call in mesh.of("ListToolLogs")] == ["inv-1", "inv-1"]


def test_the_log_of_a_failed_call_precedes_its_error(toolmesh: Any, mesh: Any) -> None:
    error = MeshError(Reason.EXECUTION_FAILED)
    error.invocation_id = "inv-2"
    mesh.answer("Invoke", error)
    mesh.answer("ListToolLogs", pb.ListToolLogsResponse(logs=[a_log("inv-2", "ZeroDivisionError")]))
    ran = toolmesh("call", "echo", "--debug")
    assert ran.exit_code != 0
    assert ran.stderr.index("ZeroDivisionError") < ran.stderr.index("EXECUTION_FAILED")


def test_a_reader_who_may_not_see_the_log_gets_the_result_all_the_same(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done({"n": 1}))
    mesh.answer("ListToolLogs", MeshError(Reason.TOOL_NOT_IN_TOKEN))
    ran = toolmesh("call", "echo", "--debug")
    assert (ran.exit_code, json.loads(ran.stdout)) == (0, {"n": 1})
    assert "tools:logs" in ran.stderr


def test_without_the_option_no_log_is_read(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", done({"n": 1}))
    toolmesh("call", "echo")
    assert mesh.of("ListToolLogs") == []
