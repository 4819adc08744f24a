"""Every built-in tool against its own schemas: valid, at the bounds, missing, extra and of another type, generated from
them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump, parse_object
from libs.common.testing.clock import ManualClock
from services.executor.adapters.registry.compile_arguments import compile_arguments
from services.executor.adapters.registry.compile_tool import compile_version
from services.executor.builtin.tool import BuiltinTool
from services.executor.domain.arguments.prepare import PreparedArguments, prepare
from services.executor.domain.tool import Confinement, Tool
from services.executor.tests.generated import Broken, at_the_bounds, breaking, keeping
from services.executor.tests.peers import registered
from services.executor.wiring import builtin_tools

TOOLS = builtin_tools(ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
# What a tool may still find wrong with arguments that keep its schema: it is no defect to say so.
TYPED = {Reason.ARGUMENTS_INVALID, Reason.EXECUTION_FAILED}


def schema_of(tool: BuiltinTool) -> dict[str, Any]:
    return parse_object(tool.manifest.input.schema)


def sample_of(tool: BuiltinTool) -> dict[str, Any]:
    """Arguments that the manifest itself shows."""
    return parse_object(tool.manifest.input.examples[-1].arguments)


def compiled(tool: BuiltinTool) -> Tool:
    found = compile_version(registered(tool.manifest)).tool
    assert found is not None
    return found


def taken_in(tool: BuiltinTool, arguments: dict[str, Any]) -> PreparedArguments:
    return prepare(compiled(tool), dump(arguments), compile_arguments(tool.manifest, Confinement()))


def named(part: Any) -> str:
    return part.manifest.tool_id if hasattr(part, "manifest") else str(getattr(part, "how", part))[:40]


@pytest.mark.parametrize("tool", TOOLS, ids=named)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_keeps_the_schema_is_answered_as_declared_or_refused_by_name(tool: BuiltinTool, data: Any) -> None:
    arguments = data.draw(keeping(schema_of(tool)))
    prepared = taken_in(tool, arguments)
    assert prepared.refusal is None
    try:
        result = tool.call(prepared.arguments)
    except MeshError as error:
        refused = error.reason
    else:
        refused = None  # type: ignore[assignment]
    if refused is not None:
        assert refused in TYPED
        return
    assert list(compiled(tool).output.violations(result)) == []
    dump(result)


BROKEN = [(tool, broken) for tool in TOOLS for broken in breaking(schema_of(tool), sample_of(tool))]


@pytest.mark.parametrize(("tool", "broken"), BROKEN, ids=named)
def test_what_breaks_the_schema_is_refused_at_its_place(tool: BuiltinTool, broken: Broken) -> None:
    refusal = taken_in(tool, broken.arguments).refusal
    assert refusal is not None
    assert refusal.reason is Reason.ARGUMENTS_INVALID
    assert broken.path in [violation.path for violation in refusal.violations]


BOUNDS = [(tool, *bound) for tool in TOOLS for bound in at_the_bounds(schema_of(tool), sample_of(tool))]


@pytest.mark.parametrize(("tool", "name", "value", "within"), BOUNDS, ids=named)
def test_a_bound_is_where_the_schema_says(tool: BuiltinTool, name: str, value: Any, within: bool) -> None:
    prepared = taken_in(tool, {**sample_of(tool), name: value})
    refused_here = prepared.refusal is not None and name in [v.path[1:] for v in prepared.refusal.violations]
    assert refused_here is not within


def test_every_tool_is_tried_in_every_way() -> None:
    ways = {(tool.manifest.tool_id, broken.how) for tool, broken in BROKEN}
    required = {tool.manifest.tool_id for tool in TOOLS if schema_of(tool).get("required")}
    expected = {(tool.manifest.tool_id, how) for tool in TOOLS for how in ("extra", "type")}
    assert ways == expected | {(name, "missing") for name in required}
    assert {tool.manifest.tool_id for tool, *_ in BOUNDS} == {tool.manifest.tool_id for tool in TOOLS}
