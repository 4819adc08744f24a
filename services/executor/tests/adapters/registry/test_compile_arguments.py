"""Argument rules compiled from manifests."""

from __future__ import annotations

from typing import Any

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import Reason
from libs.common.json.jsonio import dump
from services.executor.adapters.registry.compile_arguments import compile_arguments
from services.executor.builtin.arithmetic import Arithmetic
from services.executor.builtin.echo import Echo
from services.executor.domain.argument_spec import ArgumentSpec, InnerDefault
from services.executor.domain.arguments.prepare import call_input, prepare
from services.executor.domain.tool import Confinement
from services.executor.tests.samples import a_manifest, a_tool


def of(schema: dict[str, Any], policy: Any = mpb.INPUT_MUTATION_POLICY_DEFAULTS, **fields: Any) -> ArgumentSpec | None:
    manifest = a_manifest()
    manifest.input.CopyFrom(mpb.InputContract(schema=dump(schema), mutation_policy=policy, **fields))
    return compile_arguments(manifest, Confinement())


def test_a_tool_with_string_arguments_needs_no_rules() -> None:
    assert compile_arguments(Echo().manifest, Confinement()) is None
    assert compile_arguments(Arithmetic.manifest, Confinement()) is None


def test_arguments_are_changed_only_if_the_manifest_allows() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "o": {"properties": {"d": {"default": 1}}}}}
    assert of(schema, mpb.INPUT_MUTATION_POLICY_NONE) is None
    assert of(schema, mpb.INPUT_MUTATION_POLICY_UNSPECIFIED) is None
    for policy in (mpb.INPUT_MUTATION_POLICY_DEFAULTS, mpb.INPUT_MUTATION_POLICY_HOOKS):
        spec = of(schema, policy)
        assert spec is not None
        assert spec.coerce is not None
        assert spec.coerce({"n": "1"}).value == {"n": 1}
        assert spec.whole


@pytest.mark.parametrize(
    ("part", "reads", "whole"),
    [
        ({"type": "string"}, False, False),
        ({"type": ["null", "string"]}, False, False),
        ({"type": "boolean"}, True, False),
        ({"anyOf": [{"type": "string"}, {"type": ["integer", "null"]}]}, True, True),
        ({"items": {"type": "number"}}, True, False),
    ],
)
def test_coercion_is_compiled_only_for_coercible_types(part: Any, reads: bool, whole: bool) -> None:
    spec = of({"type": "object", "properties": {"p": part}})
    assert (spec is not None and spec.coerce is not None) is reads
    assert (spec is not None and spec.whole) is whole


def test_nested_defaults_are_found_through_references_and_lists() -> None:
    schema = {
        "type": "object",
        "$defs": {
            "leaf": {"type": "object", "properties": {"unit": {"type": "string", "default": "m"}}},
            "tree": {
                "type": "object",
                "properties": {"n": {"$ref": "#/$defs/count"}, "next": {"$ref": "#/$defs/tree"}},
            },
            "count": {"type": "integer", "default": 0},
        },
        "properties": {
            "top": {"type": "integer", "default": 1},
            "leaf": {"$ref": "#/$defs/leaf", "default": {}},
            "all": {"type": "array", "items": {"$ref": "#/$defs/leaf"}},
            "maybe": {"anyOf": [{"properties": {"x": {"default": 1}}}]},
            "tree": {"$ref": "#/$defs/tree"},
        },
    }
    spec = of(schema)
    assert spec is not None
    assert InnerDefault(("leaf",), "unit", "m") in spec.inner
    assert InnerDefault(("all", "*"), "unit", "m") in spec.inner
    assert InnerDefault(("tree", "next"), "n", 0) in spec.inner
    # The top level has its own, and what applies only sometimes fills nothing in.
    assert {inner.name for inner in spec.inner} == {"unit", "n"}
    assert len(spec.inner) <= 256
    tool = a_tool(input_schema=schema)
    assert prepare(tool, b"{}", spec).arguments == {"top": 1, "leaf": {"unit": "m"}}


def test_a_default_at_the_top_level_may_be_behind_a_reference() -> None:
    schema = {
        "type": "object",
        "$defs": {
            "limit": {"type": "integer", "default": 10},
            "own": {"$ref": "#/$defs/limit", "default": 3},
            "none": {"type": "integer"},
        },
        "properties": {name: {"$ref": f"#/$defs/{name}"} for name in ("limit", "own", "none")},
    }
    assert prepare(a_tool(input_schema=schema), b"{}", of(schema)).arguments == {"limit": 10, "own": 3}


@pytest.mark.parametrize("default", [{}, {"default": 0}], ids=["none", "in every part"])
def test_the_search_in_a_recursive_schema_is_bounded(default: dict[str, Any]) -> None:
    """Unfolded it has 200 to the power of 8 places; the registry admits it, for a call goes only as deep as its
    arguments do.
    """
    node = {"$ref": "#/$defs/node"}
    schema = {
        "type": "object",
        "properties": {"tree": node},
        "$defs": {"node": {"type": "object", "properties": {f"p{n}": node for n in range(200)}, **default}},
    }
    spec = of(schema)
    assert spec is not None
    assert len(spec.inner) <= 256


def test_internal_fields_are_refused_of_callers_and_set_by_the_mesh() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    properties = {
        "text": {"type": "string"},
        "tenant": {"type": "string", "x-mesh": "tenant"},
        "limit": {"type": "integer", "default": 5},
        "unset": {"type": "string"},
    }
    runtime = {"type": "object", "properties": properties, "required": ["text", "tenant"]}
    spec = of(schema, runtime_schema=dump(runtime), internal_only_fields=["/tenant", "/limit", "/unset"])
    tool = a_tool(input_schema=schema)
    for name in ("tenant", "limit", "unset"):
        refused = prepare(tool, dump({"text": "a", name: "x"}), spec).refusal
        assert refused is not None
        assert [(each.path, each.rule) for each in refused.violations] == [(f"/{name}", "internal_only")]
    assert call_input(spec, {"text": "a"}, {"tenant": "acme"})[0] == {"text": "a", "tenant": "acme", "limit": 5}
    with pytest.raises(Exception) as caught:
        call_input(spec, {"text": "a"}, {"tenant": ""})
    assert caught.value.reason is Reason.ARGUMENTS_INVALID  # type: ignore[attr-defined]


def test_checks_and_policies_are_compiled_with_the_confinement() -> None:
    manifest = a_manifest()
    manifest.interface.semantic_checks.append("unique:/list/*")
    manifest.interface.permission_matchers.add(target=mpb.MATCH_TARGET_PATH, argument_pointer="/text")
    manifest.interface.permission_matchers.add(target=mpb.MATCH_TARGET_TOOL_NAME)
    argument_spec = compile_arguments(manifest, Confinement(reads=("inbox",)))
    assert argument_spec is not None
    assert (len(argument_spec.checks), len(argument_spec.policies)) == (1, 1)
    tool = a_tool()
    assert prepare(tool, dump({"text": "/volumes/inbox/a"}), argument_spec).refusal is None
    refused = prepare(tool, dump({"text": "/etc/shadow"}), argument_spec).refusal
    assert refused is not None
    assert refused.reason is Reason.INJECTION_DETECTED


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m.interface.semantic_checks.append("unheard_of:/a"),
        lambda m: m.interface.semantic_checks.append("unique"),
        lambda m: setattr(m.input, "runtime_schema", b"[]"),
        lambda m: setattr(m.input, "runtime_schema", b'{"type":"nothing"}'),
        lambda m: (
            setattr(m.input, "runtime_schema", b'{"properties":{"t":{"x-mesh":"password"}}}'),  # type: ignore[func-returns-value]
            m.input.internal_only_fields.append("/t"),
        ),
    ],
)
def test_an_unsupported_rule_makes_a_version_uncallable(spoil: Any) -> None:
    manifest = a_manifest()
    spoil(manifest)
    with pytest.raises(Exception) as caught:
        compile_arguments(manifest, Confinement())
    assert type(caught.value).__name__ in ("SchemaError", "ValueError")
