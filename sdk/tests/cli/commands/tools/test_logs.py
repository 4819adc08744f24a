"""`toolmesh tools logs`: what the calls of a tool printed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import tool_log_pb2 as log_pb
from toolmesh.executor.v1 import tool_log_service_pb2 as pb


def a_log(name: str, text: str) -> log_pb.ToolLog:
    line = log_pb.ToolLogLine(source=log_pb.TOOL_LOG_SOURCE_STDOUT, text=text)
    return log_pb.ToolLog(
        invocation_id=name,
        tool_version="tools/acme.resize/versions/1.0.0",
        lines=[line],
        omitted_characters=1234,
        create_time=Timestamp(seconds=1_800_000_000),
    )


@pytest.fixture
def logs(mesh: Any) -> Any:
    pages = (
        pb.ListToolLogsResponse(logs=[a_log("i3", "third"), a_log("i2", "second")], next_page_token="p2"),
        pb.ListToolLogsResponse(logs=[a_log("i1", "first")]),
    )
    mesh.answer("ListToolLogs", *pages)
    return mesh


def test_lines_are_shown_oldest_call_first(toolmesh: Any, logs: Any) -> None:
    shown = toolmesh("tools", "logs", "acme.resize", "--version", "1.0.0").stdout
    assert shown.index("first") < shown.index("second") < shown.index("third")
    assert "1,234 more characters" in shown
    asked = [call.request for call in logs.of("ListToolLogs")]
    assert [(each.tool, each.version, each.page_token) for each in asked] == [
        ("acme.resize", "1.0.0", ""),
        ("acme.resize", "1.0.0", "p2"),
    ]


def test_one_invocation_is_asked_for_alone(toolmesh: Any, logs: Any) -> None:
    found = json.loads(toolmesh("tools", "logs", "--invocation", "i3", "-n", "1", "--json").stdout)["logs"]
    assert [(log["invocation_id"], log["lines"][0]["source"]) for log in found] == [("i3", "stdout")]
    assert logs.of("ListToolLogs")[0].request.invocation_id == "i3"


def test_a_tool_or_an_invocation_is_needed(toolmesh: Any, logs: Any) -> None:
    assert toolmesh("tools", "logs").exit_code == 2
