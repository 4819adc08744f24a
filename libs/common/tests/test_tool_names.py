"""References, resource names and grants."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName, grant_covers, grant_names, split_version_name


def test_a_reference_without_a_namespace_means_core() -> None:
    assert (
        ToolName.parse("echo")
        == ToolName("core", "echo")
        == ToolName.parse("core.echo")
        == ToolName.parse("tools/core.echo")
    )


def test_names_come_apart_as_they_were_put_together() -> None:
    tool = ToolName("acme", "send_email")
    assert split_version_name(tool.version("1.2.3-rc.1+b5")) == (tool, "1.2.3-rc.1+b5")


@pytest.mark.parametrize(
    "reference",
    ["", "E", "ec", "Echo", "a.b.c", "../etc/passwd", "echo ", "echo\n", "écho", "tools/", "x" * 400, "acme.", ".echo"],
)
def test_what_is_no_reference_names_no_tool(reference: str) -> None:
    with pytest.raises(MeshError) as caught:
        ToolName.parse(reference)
    assert caught.value.reason is Reason.TOOL_NOT_FOUND


@pytest.mark.parametrize(
    "name",
    ["tools/core.echo/versions/1.0.0\n", "tools/core.echo/versions/1.\u0661.0", "x/tools/core.echo/versions/1.0.0"],
)
def test_what_is_no_name_of_a_version_does_not_come_apart(name: str) -> None:
    with pytest.raises(MeshError) as caught:
        split_version_name(name)
    assert caught.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("pattern", "reference", "covered"),
    [
        ("*", "acme.send_email", True),
        ("echo", "echo", True),
        ("echo", "acme.echo", False),
        ("arith*", "arithmetic", True),
        ("arith*", "acme.arithmetic", False),
        ("acme.*", "acme.send_email", True),
        ("acme.*", "acme-evil.send_email", False),
        ("*.echo", "acme.echo", True),
        ("core.echo", "echo", True),
        ("ech", "echo", False),
    ],
)
def test_grants(pattern: str, reference: str, covered: bool) -> None:
    assert grant_covers(pattern, ToolName.parse(reference)) is covered


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("*", False),
        ("*.*", False),
        ("*.pay", False),
        ("acme.*", True),
        ("acme.pay", True),
        ("ac*.*", True),
        ("pay", False),
    ],
)
def test_a_grant_names_a_tool_by_its_namespace(pattern: str, named: bool) -> None:
    assert grant_names(pattern, ToolName("acme", "pay")) is named
