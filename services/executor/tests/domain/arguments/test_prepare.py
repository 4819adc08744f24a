"""Inputs: parsed, completed, read as declared, checked; every change named, and every refusal typed with all of its
places.
"""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.jsonio import dump
from services.executor.adapters.registry.compile_coercion import Coercer
from services.executor.domain.argument_spec import ArgumentSpec, Change, CoercionResult, Fill, InnerDefault
from services.executor.domain.arguments.prepare import call_input, prepare, recheck
from services.executor.domain.tool import Tool
from services.executor.tests.samples import a_tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "minimum": 0, "default": 1},
        "deep": {"type": "object", "properties": {"flag": {"type": "boolean"}}, "additionalProperties": False},
        "list": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    },
    "required": ["text"],
}


def tool_and_intake(**changes: Any) -> tuple[Tool, ArgumentSpec]:
    fields: dict[str, Any] = {"coerce": Coercer(dump(SCHEMA)).coerce, "whole": True, **changes}
    return a_tool(input_schema=SCHEMA), ArgumentSpec(**fields)


def refusal(payload: bytes, **changes: Any) -> MeshError:
    tool, argument_spec = tool_and_intake(**changes)
    found = prepare(tool, payload, argument_spec).refusal
    assert found is not None
    return found


def test_without_an_intake_the_schema_says_it_all() -> None:
    tool = a_tool()
    assert prepare(tool, b'{"text":"a"}') == ({"text": "a", "count": 1}, (Change("/count", "default", "schema"),), None)
    assert prepare(tool, b'{"text":"a","count":3}') == ({"text": "a", "count": 3}, (), None)
    refused = prepare(tool, b'{"text":"a","count":"3"}').refusal
    assert refused is not None
    assert refused.reason is Reason.ARGUMENTS_INVALID


def test_what_is_declared_is_neither_copied_nor_coerced() -> None:
    def never(arguments: dict[str, Any]) -> CoercionResult:
        raise AssertionError("nothing had to be read")

    tool, argument_spec = tool_and_intake(coerce=never)
    prepared = prepare(tool, b'{"text":"3 e4","count":2,"deep":{"flag":true}}', argument_spec)
    assert prepared == ({"text": "3 e4", "count": 2, "deep": {"flag": True}}, (), None)


def test_defaults_come_first_then_readings() -> None:
    tool, argument_spec = tool_and_intake()
    prepared = prepare(tool, b'{"text":"a","deep":"{\\"flag\\":\\"true\\"}"}', argument_spec)
    assert prepared.arguments == {"text": "a", "count": 1, "deep": {"flag": True}}
    assert prepared.changes == (
        Change("/count", "default", "schema"),
        Change("/deep", "coercion", "string to object"),
        Change("/deep/flag", "coercion", "string to boolean"),
    )
    assert prepared.refusal is None


@pytest.mark.parametrize("written", [b"42.0", b"4.2e1", b"42E0"])
def test_a_double_that_is_an_integer_becomes_one_though_the_schema_takes_it(written: bytes) -> None:
    tool, argument_spec = tool_and_intake()
    prepared = prepare(tool, b'{"text":"a","count":' + written + b"}", argument_spec)
    assert type(prepared.arguments["count"]) is int
    assert prepared.changes == (Change("/count", "coercion", "number to integer"),)


def test_what_would_be_lost_is_named_beside_what_else_is_wrong() -> None:
    error = refusal(b'{"count":"42.5","deep":{"flag":"x"},"list":[{"id":"1e400"}]}')
    assert error.reason is Reason.COERCION_FAILED
    assert {(each.path, each.rule) for each in error.violations} >= {
        ("/count", "coercion"),
        ("/list/0/id", "coercion"),
        ("/text", "required"),
        ("/deep/flag", "type"),
    }
    assert len({each.path for each in error.violations}) == len(error.violations)


def test_what_no_reading_mends_is_the_schemas_to_refuse_with_all_that_is_left() -> None:
    error = refusal(b'{"count":"-1","deep":{"flag":"true","more":1}}')
    assert error.reason is Reason.ARGUMENTS_INVALID
    assert {"/text", "/count", "/deep/more"} <= {each.path for each in error.violations}
    assert "/deep/flag" not in {each.path for each in error.violations}


def test_a_reading_never_makes_good_arguments_bad() -> None:
    tool, argument_spec = tool_and_intake(
        coerce=lambda arguments: CoercionResult({**arguments, "count": "bad"}, (Change("/count", "coercion", ""),))
    )
    prepared = prepare(tool, b'{"text":"a","count":1.0}', argument_spec)
    assert (prepared.arguments["count"], prepared.changes, prepared.refusal) == (1.0, (), None)
    tool, argument_spec = tool_and_intake(
        coerce=lambda arguments: CoercionResult(arguments, (), (Violation("/count", "coercion", ""),))
    )
    assert prepare(tool, b'{"text":"a","count":1.0}', argument_spec).refusal is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", Reason.INVALID_JSON),
        (b"[]", Reason.INVALID_JSON),
        (b'{"text":"a","text":"b"}', Reason.INVALID_JSON),
        (b'{"count":18446744073709551616}', Reason.INVALID_JSON),
        (b'{"text":' + b"[" * 70 + b"]" * 70 + b"}", Reason.PAYLOAD_TOO_LARGE),
    ],
)
def test_what_is_not_the_json_of_the_contract_is_refused(payload: bytes, reason: Reason) -> None:
    with pytest.raises(MeshError) as caught:
        prepare(*[tool_and_intake()[0], payload, tool_and_intake()[1]])  # type: ignore[arg-type]
    assert caught.value.reason is reason


def test_a_caller_may_not_send_what_only_the_mesh_may_set() -> None:
    error = refusal(
        b'{"text":"a","tenant":"x","list":[{"id":1},{"owner":"me"}]}', internal=(("tenant",), ("list", "*", "owner"))
    )
    assert error.reason is Reason.ARGUMENTS_INVALID
    assert [(each.path, each.rule) for each in error.violations] == [
        ("/tenant", "internal_only"),
        ("/list/1/owner", "internal_only"),
    ]


def test_nor_may_a_caller_send_it_within_a_text_that_is_read_as_an_object() -> None:
    internal = (("deep", "flag"), ("list", "*", "owner"))
    error = refusal(b'{"text":"a","deep":"{\\"flag\\":true}","list":"[{\\"owner\\":\\"me\\"}]"}', internal=internal)
    assert error.reason is Reason.ARGUMENTS_INVALID
    assert [(each.path, each.rule) for each in error.violations] == [
        ("/deep/flag", "internal_only"),
        ("/list/0/owner", "internal_only"),
    ]


def test_an_object_that_came_as_a_text_gets_its_defaults() -> None:
    tool, argument_spec = tool_and_intake(inner=(InnerDefault(("deep",), "flag", True),))
    prepared = prepare(tool, b'{"text":"a","count":1,"deep":"{}"}', argument_spec)
    assert prepared.arguments["deep"] == {"flag": True}
    assert prepared.changes == (
        Change("/deep", "coercion", "string to object"),
        Change("/deep/flag", "default", "schema"),
    )
    assert prepared.refusal is None


def test_defaults_within_objects_are_filled_in_where_the_object_is() -> None:
    inner = (InnerDefault(("deep",), "flag", True), InnerDefault(("list", "*"), "id", 7))
    tool, argument_spec = tool_and_intake(inner=inner)
    prepared = prepare(tool, b'{"text":"a","count":1,"deep":{},"list":[{},{"id":1}]}', argument_spec)
    assert prepared.arguments["deep"] == {"flag": True}
    assert prepared.arguments["list"] == [{"id": 7}, {"id": 1}]
    assert [change.path for change in prepared.changes] == ["/deep/flag", "/list/0/id"]
    assert prepare(tool, b'{"text":"a","count":1}', argument_spec).changes == ()


def test_a_default_that_a_runner_changes_is_whole_again_for_the_next_call() -> None:
    schema = {"type": "object", "properties": {"list": {"type": "array", "default": [1]}}}
    tool = a_tool(input_schema=schema)
    prepare(tool, b"{}").arguments["list"].append(2)
    assert prepare(tool, b"{}").arguments == {"list": [1]}


def says(reason: str) -> Any:
    return lambda arguments: [Violation("/text", reason, "no")] if arguments["text"] == reason else []


def test_a_policy_speaks_before_a_check_and_both_only_about_what_keeps_the_schema() -> None:
    rules = {"policies": (says("attack"),), "checks": (says("odd"), lambda arguments: says("attack")(arguments))}
    assert refusal(b'{"text":"attack"}', **rules).reason is Reason.INJECTION_DETECTED
    assert refusal(b'{"text":"odd"}', **rules).reason is Reason.ARGUMENTS_INVALID
    assert refusal(b'{"text":"odd"}', **rules).violations == (Violation("/text", "odd", "no"),)
    assert refusal(b'{"text":"attack","more":1}', **rules).reason is Reason.ARGUMENTS_INVALID
    tool, argument_spec = tool_and_intake(**rules)
    assert prepare(tool, b'{"text":"fine"}', argument_spec).refusal is None


def test_what_a_hook_changed_is_held_to_all_that_a_callers_arguments_are() -> None:
    tool, argument_spec = tool_and_intake(policies=(says("attack"),), checks=(says("odd"),), internal=(("tenant",),))
    reasons = [
        error and error.reason
        for error in (
            recheck(tool, arguments, argument_spec)
            for arguments in (
                {"text": "fine", "count": 1},
                {"text": "attack"},
                {"text": "odd"},
                {"text": "fine", "count": "1"},
                {"text": "fine", "tenant": "x"},
            )
        )
    ]
    assert reasons == [
        None,
        Reason.INJECTION_DETECTED,
        Reason.ARGUMENTS_INVALID,
        Reason.ARGUMENTS_INVALID,
        Reason.ARGUMENTS_INVALID,
    ]
    assert recheck(a_tool(), {"text": "fine"}) is None


def test_only_the_tool_gets_what_the_mesh_sets() -> None:
    fills = (Fill("tenant", "tenant", None, False), Fill("limit", "", [5], True), Fill("agent", "agent", "none", True))
    arguments = {"text": "a"}
    received, changes = call_input(ArgumentSpec(fills=fills), arguments, {"tenant": "acme", "agent": ""})
    assert received == {"text": "a", "tenant": "acme", "limit": [5], "agent": "none"}
    assert arguments == {"text": "a"}
    assert [(change.path, change.source, change.reason) for change in changes] == [
        ("/tenant", "default", "internal"),
        ("/limit", "default", "internal"),
        ("/agent", "default", "internal"),
    ]
    received["limit"].append(6)
    assert call_input(ArgumentSpec(fills=fills), arguments, {})[0]["limit"] == [5]


def test_what_the_tool_gets_is_held_to_its_own_schema() -> None:
    argument_spec = ArgumentSpec(
        call=lambda value: [] if "tenant" in value else [Violation("/tenant", "required", "is required")]
    )
    with pytest.raises(MeshError) as caught:
        call_input(argument_spec, {"text": "a"}, {})
    assert caught.value.reason is Reason.ARGUMENTS_INVALID
    given = {"text": "a", "tenant": "x"}
    assert call_input(argument_spec, given, {})[0] is given
    assert call_input(None, given, {}) == (given, ())
