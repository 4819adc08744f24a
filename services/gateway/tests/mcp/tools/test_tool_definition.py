"""Tools of the registry as MCP tools."""

from __future__ import annotations

from toolmesh.registry.v1.tool_trust_pb2 import LookAlike, ToolTrust
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from services.gateway.mcp.protocol import LOOK_ALIKES_META_KEY, TASKS_VERSION
from services.gateway.mcp.tools.tool_definition import definition


def test_names_that_are_easily_taken_for_a_tool_are_part_of_its_definition() -> None:
    alike = LookAlike(name="tools/acme.send_emails", kind="lookalike", older=True)
    shown = definition(ToolVersion(trust=ToolTrust(look_alikes=[alike])), "send_email", TASKS_VERSION)
    assert shown["_meta"][LOOK_ALIKES_META_KEY] == [
        {"name": "tools/acme.send_emails", "kind": "lookalike", "older": True}
    ]
    assert LOOK_ALIKES_META_KEY not in definition(ToolVersion(), "send_email", TASKS_VERSION)["_meta"]
