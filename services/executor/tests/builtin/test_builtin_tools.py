"""What every built-in tool promises: a manifest that the registry admits and examples that hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import protovalidate
import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.jsonio import parse
from libs.common.testing.clock import ManualClock
from services.executor.adapters.registry.compile_tool import compile_version
from services.executor.builtin.arithmetic import Arithmetic
from services.executor.builtin.clock_now import ClockNow
from services.executor.builtin.echo import Echo
from services.executor.builtin.tool import BuiltinTool
from services.executor.domain.arguments.prepare import prepare
from services.executor.domain.tool import Mutation, TimeoutClass, Tool
from services.executor.tests.peers import registered

TOOLS: list[Any] = [Echo(), ClockNow(ManualClock(datetime(2026, 1, 1, tzinfo=UTC))), Arithmetic()]
EXAMPLES = [(tool, example) for tool in TOOLS for example in tool.manifest.input.examples]


def compiled(tool: BuiltinTool) -> Tool:
    found = compile_version(registered(tool.manifest)).tool
    assert found is not None
    return found


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.manifest.tool_id)
def test_a_manifest_keeps_the_contracts_own_rules(tool: BuiltinTool) -> None:
    protovalidate.validate(tool.manifest)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.manifest.tool_id)
def test_a_manifest_says_what_the_mesh_expects_of_its_own_tools(tool: BuiltinTool) -> None:
    manifest, found = tool.manifest, compiled(tool)
    assert (manifest.namespace, manifest.provider) == ("core", "toolmesh")
    assert found.required_scopes == ("tools:call",)
    assert (found.mutation, found.timeout_class) == (Mutation.READ_ONLY, TimeoutClass.INTERACTIVE)
    assert (found.runner, found.key_required, found.repeatable, found.summarized) == ("builtin", False, True, True)
    assert manifest.interface.safety.sandbox_tier == pb.SANDBOX_TIER_IN_PROCESS
    assert 3 <= len(manifest.search_hint.split()) <= 10


@pytest.mark.parametrize(("tool", "example"), EXAMPLES, ids=lambda part: getattr(part, "title", ""))
def test_an_example_yields_what_it_shows(tool: BuiltinTool, example: pb.ContractExample) -> None:
    found = compiled(tool)
    arguments = prepare(found, example.arguments, found.argument_spec).arguments
    result = tool.call(arguments)
    assert result == parse(example.result)
    assert list(found.output.violations(result)) == []
