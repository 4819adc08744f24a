"""Compiled tool versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.common.json.jsonio import dump
from services.executor.adapters.registry.compile_tool import MAX_RESULT_BYTES, compile_version
from services.executor.domain.tool import Deprecation, Mutation, TimeoutClass, Tool, ToolTrust
from services.executor.tests.peers import registered
from services.executor.tests.samples import OUTPUT, a_manifest


def tool_of(**changes: Any) -> Tool:
    tool = compile_version(registered(a_manifest(**changes))).tool
    assert tool is not None
    return tool


def test_a_tool_carries_the_fields_of_its_manifest() -> None:
    tool = tool_of(
        tags=["t"],
        side_effects=[mpb.SideEffect(resource="orders/*", operation=mpb.SIDE_EFFECT_OPERATION_CREATE)],
        permission=mpb.PermissionProfile(
            required_permissions=["net:x"],
            approval=mpb.APPROVAL_REQUIREMENT_ALWAYS,
            impact_scope=3,
            result_labels=["secret"],
        ),
        interface=mpb.ToolInterface(safety=mpb.SafetyClassification(closed_world=True)),
        observability=mpb.Observability(audit_detail=mpb.AUDIT_DETAIL_SUMMARY),
    )
    assert (tool.name, tool.qualified, tool.version) == ("tools/core.say/versions/1.0.0", "core.say", "1.0.0")
    assert (tool.mutation, tool.timeout_class) == (Mutation.READ_ONLY, TimeoutClass.STANDARD)
    assert (tool.runner, tool.entry_point) == ("builtin", "say")
    assert (tool.required_scopes, tool.required_permissions, tool.tags) == (("tools:call",), ("net:x",), ("t",))
    assert (tool.approval_always, tool.impact_scope) == (True, 3)
    assert tool.side_effects == ("create orders/*",)
    assert (tool.closed_world, tool.result_labels, tool.resources) == (True, ("secret",), None)
    assert tool.trust == ToolTrust()
    assert tool.summarized
    assert tool.max_result_bytes == MAX_RESULT_BYTES


@pytest.mark.parametrize(
    ("execution", "seconds"),
    [
        (mpb.ExecutionProfile(timeout_class=mpb.TIMEOUT_CLASS_INTERACTIVE), 0.5),
        (mpb.ExecutionProfile(timeout_class=mpb.TIMEOUT_CLASS_LONG_RUNNING), 300.0),
        (mpb.ExecutionProfile(timeout_default=Duration(seconds=2)), 2.0),
        (mpb.ExecutionProfile(timeout_default=Duration(seconds=3), timeout_max=Duration(seconds=1)), 1.0),
        (mpb.ExecutionProfile(timeout_default=Duration(seconds=60)), 5.0),
    ],
)
def test_the_time_limit_is_the_minimum_of_class_and_manifest(execution: mpb.ExecutionProfile, seconds: float) -> None:
    assert tool_of(execution=execution).own_limit == seconds


@pytest.mark.parametrize(
    ("changes", "required", "repeatable"),
    [
        ({}, False, True),
        ({"idempotency": mpb.Idempotency(mode=mpb.IDEMPOTENCY_MODE_KEY_REQUIRED)}, True, True),
        ({"mutation_class": mpb.MUTATION_CLASS_WRITE_REVERSIBLE}, True, False),
        (
            {
                "mutation_class": mpb.MUTATION_CLASS_WRITE_REVERSIBLE,
                "idempotency": mpb.Idempotency(mode=mpb.IDEMPOTENCY_MODE_NATURAL),
            },
            False,
            False,
        ),
        (
            {
                "mutation_class": mpb.MUTATION_CLASS_WRITE_IRREVERSIBLE,
                "idempotency": mpb.Idempotency(
                    mode=mpb.IDEMPOTENCY_MODE_KEY_REQUIRED, uncertain_outcome=mpb.UNCERTAIN_OUTCOME_RULE_REPEAT
                ),
            },
            True,
            True,
        ),
    ],
)
def test_key_requirement_and_repeatability_follow_the_manifest(
    changes: dict[str, Any], required: bool, repeatable: bool
) -> None:
    tool = tool_of(**changes)
    assert (tool.key_required, tool.repeatable) == (required, repeatable)


@pytest.mark.parametrize(
    ("timeout_class", "window", "seconds"),
    [
        (mpb.TIMEOUT_CLASS_STANDARD, None, 3600.0),
        (mpb.TIMEOUT_CLASS_ASYNC, None, 2 * 86_400.0),
        (mpb.TIMEOUT_CLASS_STANDARD, Duration(seconds=7200), 7200.0),
    ],
)
def test_the_idempotency_window_has_a_minimum(timeout_class: Any, window: Duration | None, seconds: float) -> None:
    execution = mpb.ExecutionProfile(timeout_class=timeout_class)
    tool = tool_of(execution=execution, idempotency=mpb.Idempotency(window=window))
    assert tool.window == seconds


def test_defaults_are_filled_only_if_the_manifest_allows() -> None:
    assert [default.argument for default in tool_of().defaults] == ["count"]
    silent = a_manifest()
    silent.input.mutation_policy = mpb.INPUT_MUTATION_POLICY_UNSPECIFIED
    tool = compile_version(registered(silent)).tool
    assert tool is not None
    assert tool.defaults == ()


def test_a_version_with_an_invalid_schema_is_listed_and_not_callable() -> None:
    manifest = a_manifest(input=mpb.InputContract(schema=dump({"$ref": "https://example.com/x"})))
    entry = compile_version(registered(manifest))
    assert (entry.tool, entry.state) == (None, "AVAILABLE")


def test_a_state_change_reuses_the_compiled_schemas() -> None:
    manifest = a_manifest()
    first = compile_version(registered(manifest))
    sunset = Timestamp(seconds=1_900_000_000)
    deprecation = vpb.Deprecation(sunset_time=sunset, successor="tools/core.say/versions/2.0.0")
    second = compile_version(registered(manifest, "DEPRECATED", deprecation=deprecation), first)
    assert first.tool is not None
    assert second.tool is not None
    assert second.tool.input is first.tool.input
    assert second.tool.deprecation == Deprecation(
        datetime.fromtimestamp(1_900_000_000, UTC), "tools/core.say/versions/2.0.0", ""
    )
    assert (second.state, second.sunset_at) == ("DEPRECATED", 1_900_000_000.0)


def test_another_digest_is_compiled_again() -> None:
    first = compile_version(registered(a_manifest()))
    second = compile_version(
        registered(a_manifest(output=mpb.OutputContract(schema=dump({**OUTPUT, "minProperties": 1})))), first
    )
    assert first.tool is not None
    assert second.tool is not None
    assert second.tool.output is not first.tool.output
