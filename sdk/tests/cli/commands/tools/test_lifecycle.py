"""`toolmesh tools deprecate` and its siblings: what is asked of the mesh, by whom, and what is shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import tool_version_pb2
from toolmesh_sdk import Reason

from libs.common.errors import MeshError, Violation

ECHO = "tools/core.echo/versions/1.0.0"


def version(state: str, **more: Any) -> Any:
    number = tool_version_pb2.LifecycleState.Value(f"LIFECYCLE_STATE_{state}")
    return tool_version_pb2.ToolVersion(name=ECHO, state=number, etag="2a", **more)


def test_a_deprecation_says_dates_and_names_in_full(toolmesh: Any, mesh: Any) -> None:
    deprecation = tool_version_pb2.Deprecation(
        sunset_time=Timestamp(seconds=1_800_000_000), successor="tools/core.echo/versions/2.0.0"
    )
    mesh.answer("DeprecateVersion", pb.DeprecateVersionResponse(version=version("DEPRECATED", deprecation=deprecation)))
    ran = toolmesh(
        *("tools", "deprecate", "echo@1.0.0", "--reason", "old", "--sunset", "10d", "--grace", "2d"),
        *("--successor", "echo@2.0.0", "--guide", "https://x", "--etag", "29"),
    )
    assert ran.exit_code == 0
    assert ran.stdout.startswith("core.echo@1.0.0 is deprecated, until 2027-01-15T08:00:00.000Z, use core.echo@2.0.0")
    [call] = mesh.of("DeprecateVersion")
    request = call.request
    assert (request.name, request.reason, request.etag) == (ECHO, "old", "29")
    assert (request.successor, request.migration_guide_url) == ("tools/core.echo/versions/2.0.0", "https://x")
    assert request.grace_period.seconds == 2 * 86400
    away = request.sunset_time.ToDatetime(tzinfo=UTC) - datetime.now(UTC)
    assert timedelta(days=9) < away <= timedelta(days=10)
    # With nothing but a local mesh, the operator's own certificate is the authority.
    assert call.peer
    assert "authorization" not in call.metadata


def test_a_sunset_may_be_a_date(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("DeprecateVersion", pb.DeprecateVersionResponse(version=version("DEPRECATED")))
    toolmesh("tools", "deprecate", "echo@1.0.0", "-r", "old", "--sunset", "2027-01-15")
    assert mesh.of("DeprecateVersion")[0].request.sunset_time.ToDatetime(UTC) == datetime(2027, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong", [("--sunset", "99999999d"), ("--sunset", "9" * 30 + "d"), ("--grace", "9" * 30 + "d")]
)
def test_a_span_that_leads_nowhere_is_wrong_usage(toolmesh: Any, mesh: Any, wrong: tuple[str, str]) -> None:
    assert toolmesh("tools", "deprecate", "echo@1.0.0", "--reason", "old", *wrong).exit_code == 2
    assert mesh.of("DeprecateVersion") == []


@pytest.mark.parametrize(
    ("command", "rpc", "whole"),
    [
        ("publish", "PublishVersion", False),
        ("undeprecate", "UndeprecateVersion", False),
        ("sunset", "SunsetVersion", False),
        ("needs-setup", "MarkRequiresSetup", False),
        ("setup-done", "CompleteSetup", False),
        ("defer", "DeferVersion", False),
        ("load", "LoadVersion", False),
        ("disable", "DisableTool", True),
        ("enable", "EnableTool", True),
        ("quarantine", "QuarantineTool", True),
        ("release", "ReleaseTool", True),
    ],
)
def test_a_verb_takes_a_version_and_some_a_whole_tool(
    toolmesh: Any, mesh: Any, command: str, rpc: str, whole: bool
) -> None:
    changed = {"versions": [version("DISABLED")]} if whole else {"version": version("DISABLED")}
    mesh.answer(rpc, getattr(pb, f"{rpc}Response")(**changed))
    ran = toolmesh("tools", command, "echo@1.0.0", "--reason", "why")
    assert (ran.exit_code, ran.stdout) == (0, "core.echo@1.0.0 is disabled  etag 2a\n")
    assert (mesh.of(rpc)[0].request.name, mesh.of(rpc)[0].request.reason) == (ECHO, "why")
    of_a_tool = toolmesh("tools", command, "echo", "--reason", "why")
    assert of_a_tool.exit_code == (0 if whole else 2)
    if whole:
        assert mesh.of(rpc)[1].request.name == "echo"


@pytest.mark.parametrize("command", ["sunset", "disable", "quarantine", "release"])
def test_some_lifecycle_commands_require_a_reason(toolmesh: Any, mesh: Any, command: str) -> None:
    assert toolmesh("tools", command, "echo@1.0.0").exit_code == 2
    assert mesh.seen == []


def test_a_token_that_is_given_decides_instead_of_the_operator(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("EnableTool", pb.EnableToolResponse(versions=[version("AVAILABLE")]))
    assert toolmesh("tools", "enable", "echo", "--token", "t").exit_code == 0
    [call] = mesh.of("EnableTool")
    assert call.metadata["authorization"] == "Bearer t"
    assert not call.peer


def test_a_removal_that_must_wait_says_until_when(toolmesh: Any, mesh: Any) -> None:
    deprecation = tool_version_pb2.Deprecation(remove_time=Timestamp(seconds=1_800_000_000))
    blocked = pb.RemovalBlocked(version=version("SUNSET", deprecation=deprecation), calls=7)
    mesh.answer("RemoveVersion", pb.RemoveVersionResponse(blocked=blocked))
    ran = toolmesh("tools", "remove", "echo@1.0.0", "-r", "over")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "7 recent calls" in ran.stderr
    as_json = toolmesh("tools", "remove", "echo@1.0.0", "-r", "over", "--json")
    assert json.loads(as_json.stdout)["blocked"]["calls"] == 7
    mesh.answer("RemoveVersion", pb.RemoveVersionResponse(removed=version("RETIRED")))
    assert toolmesh("tools", "remove", "echo@1.0.0", "-r", "over", "--force").exit_code == 0
    assert [call.request.force for call in mesh.of("RemoveVersion")] == [False, False, True]


def test_history_is_read_page_by_page_and_shown_newest_first(toolmesh: Any, mesh: Any) -> None:
    def page(*verbs: str, token: str = "") -> Any:
        shown = [pb.Transition(version=ECHO, verb=verb, actor="operator", reason="why", to_state=2) for verb in verbs]
        return pb.ListTransitionsResponse(transitions=shown, next_page_token=token)

    mesh.answer("ListTransitions", page("complete_setup", "disable", token="t"), page("register"))
    lines = toolmesh("tools", "history", "echo").stdout.splitlines()
    assert lines[0].split() == ["WHEN", "VERSION", "WHAT", "FROM", "TO", "WHO", "WHY"]
    assert ["complete setup" in lines[1], "disable" in lines[2], "register" in lines[3]] == [True, True, True]
    assert [call.request.page_token for call in mesh.of("ListTransitions")] == ["", "t"]
    mesh.answer("ListTransitions", page("disable", "enable", token="t"))
    few = json.loads(toolmesh("tools", "history", "echo@1.0.0", "-n", "1", "--json").stdout)
    assert [each["verb"] for each in few["transitions"]] == ["disable"]
    assert mesh.of("ListTransitions")[-1].request.name == ECHO


def test_a_refusal_lists_what_was_wrong(toolmesh: Any, mesh: Any) -> None:
    violations = [Violation("successor", "successor.exists", "does not exist")]
    mesh.answer("DeprecateVersion", MeshError(Reason.INVALID_REQUEST, violations=violations))
    ran = toolmesh("tools", "deprecate", "echo@1.0.0", "-r", "x", "--successor", "echo@9.0.0")
    assert ran.exit_code == 1
    assert "successor.exists" in ran.stderr
