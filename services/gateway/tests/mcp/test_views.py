"""Which tools a view has, and under which names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName
from services.gateway.mcp.tools.meta_tools import NAMES
from services.gateway.mcp.views import EVERYTHING, Scan, View, Views, read_views

MAIL, HYPHENATED = ToolName("acme", "send_email"), ToolName("acme-eu", "send_email")


def views_of(folder: Path, views: Any) -> Views:
    file = folder / "views.json"
    file.write_text(json.dumps({"views": views}))
    return read_views(file)


@pytest.mark.parametrize("tool", [MAIL, HYPHENATED, ToolName("core", "echo"), ToolName("core", "a_b")])
def test_every_tool_has_one_name_at_the_root(tool: ToolName) -> None:
    assert EVERYTHING.tool_of(EVERYTHING.name_of(tool)) == tool
    assert EVERYTHING.tool_of(tool.qualified) == tool


def test_views_name_tools_as_they_say(tmp_path: Path) -> None:
    views = views_of(
        tmp_path,
        {
            "one": {"namespace": "acme", "tags": ["crm"]},
            "list": {"tools": [{"tool": "acme.send_email", "name": "send"}, {"tool": "echo"}], "title": "Mail"},
            "tagged": {"tags": ["crm", "eu"], "token_budget": 5000},
        },
    )
    assert (views["one"].name_of(MAIL), views["one"].name_of(HYPHENATED)) == ("send_email", "")
    assert views["one"].tool_of("send_email") == MAIL
    assert views["one"].scans == (Scan("acme", ("crm",)),)
    assert (views["list"].name_of(MAIL), views["list"].name_of(HYPHENATED)) == ("send", "")
    assert views["list"].tool_of("echo") == ToolName("core", "echo")
    assert views["list"].scans == (Scan("acme", ()), Scan("core", ()))
    assert views["tagged"].name_of(HYPHENATED) == "acme-eu__send_email"
    assert views["tagged"].scans == (Scan("", ("crm", "eu")),)
    for view, name in (("one", "call-tool"), ("one", "acme.send_email"), ("list", "send_email"), ("list", "x")):
        with pytest.raises(MeshError) as caught:
            views[view].tool_of(name)
        assert caught.value.reason is Reason.TOOL_NOT_FOUND


def test_no_tool_has_the_name_of_a_meta_tool() -> None:
    for view in (EVERYTHING, View(namespace="core")):
        for name in NAMES:
            with pytest.raises(MeshError):
                view.tool_of(name)


@pytest.mark.parametrize(
    "views",
    [
        {"Upper": {"namespace": "acme"}},
        {"a/b": {"namespace": "acme"}},
        {"empty": {}},
        {"both": {"namespace": "acme", "tools": [{"tool": "echo"}]}},
        {"twice": {"tools": [{"tool": "acme.echo"}, {"tool": "core.echo"}]}},
        {"odd": {"tools": [{"tool": "Not A Tool"}]}},
        {"odd": {"tools": [{"tool": "echo", "name": "call-tool"}]}},
        {"odd": {"namespace": "acme", "unknown": 1}},
        {"odd": {"namespace": "acme", "token_budget": 1}},
    ],
)
def test_a_file_that_is_no_views_is_refused(tmp_path: Path, views: Any) -> None:
    with pytest.raises((ValueError, MeshError)):
        views_of(tmp_path, views)
