"""Files of policy cases that are wrong ask nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.cli.inputs.policy_cases import planned_tool, read_cases


@pytest.mark.parametrize(
    "text",
    [
        "cases: []",
        "cases: [1]",
        "[",
        "cases: [{subject: a, tool: b, expect: maybe}]",
        "cases: [{subject: a, tool: b, expect: allow, unknown: 1}]",
        "cases: [{subject: a, tool: b, expect: allow, facts: {colour: red}}]",
        "cases: [{subject: a, tool: b, expect: allow, facts: {mutation_class: 1}}]",
        "cases: [{subject: a, tool: b, expect: allow, facts: {mutation_class: read_only}, groups: 7}]",
        "{cases: [], more: 1}",
    ],
)
def test_a_file_that_is_wrong_asks_nothing(toolmesh: Any, mesh: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(text)
    assert toolmesh("policy", "test", str(path)).exit_code == 2
    assert mesh.of("AskPolicySet") == []


def test_the_example_is_read() -> None:
    cases = read_cases(Path(__file__).parents[4] / "examples" / "policies" / "cases.yaml")
    assert [case.expect for case in cases] == ["allow", "needs_approval", "allow", "deny"]
    assert planned_tool("echo@2.0.0").tool_version == "tools/core.echo/versions/2.0.0"
