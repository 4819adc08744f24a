"""`toolmesh call` of large results, and `toolmesh result`: what is stored is fetched, or it is said how."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk import Reason

from libs.common.errors import MeshError
from sdk.tests.executor_samples import CONTENT, REF, SECRET, from_offset, stored_answer


@pytest.fixture
def stored(mesh: Any) -> None:
    mesh.answer("Invoke", stored_answer())
    mesh.answer("FetchResult", from_offset())


@pytest.mark.usefixtures("stored")
def test_a_stored_result_is_printed_like_any_other(toolmesh: Any) -> None:
    ran = toolmesh("call", "report")
    assert (ran.exit_code, json.loads(ran.stdout), ran.stderr) == (0, json.loads(CONTENT), "")


@pytest.mark.usefixtures("stored")
def test_as_json_the_content_is_there_and_where_it_came_from(toolmesh: Any) -> None:
    document = json.loads(toolmesh("call", "report", "--json").stdout)
    assert document["content"] == json.loads(CONTENT)
    assert (document["persisted"][0]["ref"], document["persisted"][0]["access_token"]) == (REF, SECRET)
    assert "error" not in document


@pytest.mark.usefixtures("stored")
def test_a_result_past_the_limit_stays_stored_and_the_printed_command_fetches_it(
    toolmesh: Any, mesh: Any, tmp_path: Path
) -> None:
    ran = toolmesh("call", "report", "--max-bytes", "10")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert mesh.of("FetchResult") == []
    program, *words = shlex.split(ran.stderr.splitlines()[-1])
    assert program == "toolmesh"
    target = tmp_path / "whole.json"
    assert toolmesh(*[str(target) if word == "FILE" else word for word in words]).exit_code == 0
    assert target.read_bytes() == CONTENT


def test_a_call_whose_result_cannot_be_fetched_says_both(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", stored_answer())
    mesh.answer("FetchResult", MeshError(Reason.NOT_FOUND))
    ran = toolmesh("call", "report")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert REF in ran.stderr
    assert "NOT_FOUND" in ran.stderr
    ran = toolmesh("call", "report", "--json")
    document = json.loads(ran.stdout)
    assert (ran.exit_code, document["content"], document["error"]["reason"]) == (1, None, "NOT_FOUND")
    assert (document["invocation_id"], document["persisted"][0]["ref"]) == ("inv-1", REF)


@pytest.mark.usefixtures("stored")
def test_a_result_is_printed_or_written(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    asked = ("result", REF, "--access-token", SECRET)
    assert json.loads(toolmesh(*asked).stdout) == json.loads(CONTENT)
    document = json.loads(toolmesh(*asked, "--json").stdout)
    assert (document["content"], document["size_bytes"]) == (json.loads(CONTENT), len(CONTENT))
    written = toolmesh(*asked, "--output", str(tmp_path / "r"), "--json")
    assert (tmp_path / "r").read_bytes() == CONTENT
    assert json.loads(written.stdout)["output"] == str(tmp_path / "r")
    assert {call.request.access_token for call in mesh.of("FetchResult")} == {SECRET}


@pytest.mark.usefixtures("stored")
def test_the_access_token_may_stay_off_the_command_line(toolmesh: Any, mesh: Any) -> None:
    assert toolmesh("result", REF, "--access-token", "-", stdin=f"{SECRET}\n").exit_code == 0
    assert mesh.of("FetchResult")[0].request.access_token == SECRET


@pytest.mark.usefixtures("stored")
def test_a_capability_token_and_an_access_token_are_two_things(toolmesh: Any, mesh: Any) -> None:
    toolmesh("result", REF, "--access-token", SECRET, "--token", "mine")
    [call] = mesh.of("FetchResult")
    assert (call.request.access_token, call.metadata["authorization"]) == (SECRET, "Bearer mine")


@pytest.mark.usefixtures("stored")
def test_a_result_past_the_limit_leaves_no_file(toolmesh: Any, tmp_path: Path) -> None:
    target = tmp_path / "r"
    ran = toolmesh("result", REF, "--access-token", SECRET, "--max-bytes", "10", "-o", str(target))
    assert (ran.exit_code, target.exists()) == (1, False)
    assert "RESULT_TOO_LARGE" in ran.stderr


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    "arguments", [[], [REF], [REF, "--access-token", SECRET, "-o", "/no/such/folder/file"]], ids=["ref", "token", "out"]
)
def test_wrong_usage_is_two(toolmesh: Any, arguments: list[str]) -> None:
    ran = toolmesh("result", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
