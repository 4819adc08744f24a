"""Differences outside the schemas and the bump they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.jsonio import dump
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import manifest_of
from services.registry.domain.compatibility.comparison import compare
from services.registry.domain.compatibility.version_bumps import Bump
from services.registry.tests.manifests import INPUT, OUTPUT, reader, writer

CHECKER = JsonSchemaChecker()
PROPERTIES: dict[str, Any] = INPUT["properties"]  # type: ignore[assignment]
Edit = Callable[[pb.ToolManifest], Any]


def found(old: pb.ToolManifest, new: pb.ToolManifest) -> tuple[Bump, set[tuple[str, str]]]:
    comparison = compare(manifest_of(old), manifest_of(new), CHECKER)
    return comparison.bump, {(d.path.removeprefix("manifest."), d.kind.value) for d in comparison.differences}


def edited(base: pb.ToolManifest, *edits: Edit) -> pb.ToolManifest:
    message = pb.ToolManifest()
    message.CopyFrom(base)
    for edit in edits:
        edit(message)
    return message


def put(path: str, value: Any) -> Edit:
    def edit(message: pb.ToolManifest) -> None:
        target: Any = message
        *parts, name = path.split(".")
        for part in parts:
            target = getattr(target, part)
        setattr(target, name, value)

    return edit


def add(path: str, value: Any) -> Edit:
    def edit(message: pb.ToolManifest) -> None:
        target: Any = message
        for part in path.split("."):
            target = getattr(target, part)
        target.append(value)

    return edit


def wait(part: str, field: str, seconds: int) -> Edit:
    return lambda m: getattr(getattr(m, part), field).CopyFrom(Duration(seconds=seconds))


# The reverse of a breaking change is additive, unless the second bump says otherwise.
MAJOR, MINOR, PATCH = Bump.MAJOR, Bump.MINOR, Bump.PATCH
CHANGES: list[tuple[str, Edit, Bump, Bump]] = [
    ("mutation_class", put("mutation_class", pb.MUTATION_CLASS_WRITE_IRREVERSIBLE), MAJOR, MINOR),
    ("execution.timeout_class", put("execution.timeout_class", pb.TIMEOUT_CLASS_LONG_RUNNING), MAJOR, MINOR),
    ("sla.latency_p95", wait("sla", "latency_p95", 2), MINOR, MAJOR),
    ("sla.availability", put("sla.availability", 0.99), MINOR, MAJOR),
    ("execution.timeout_max", wait("execution", "timeout_max", 2), MAJOR, MINOR),
    ("permission.required_scopes", add("permission.required_scopes", "orders:admin"), MAJOR, MINOR),
    ("permission.required_permissions", add("permission.required_permissions", "network:x"), MAJOR, MINOR),
    ("permission.data_access", add("permission.data_access", "confidential"), MAJOR, MINOR),
    ("permission.impact_scope", put("permission.impact_scope", 3), MAJOR, MINOR),
    ("permission.approval", put("permission.approval", pb.APPROVAL_REQUIREMENT_ALWAYS), MAJOR, MINOR),
    (
        "permission.credential_propagation",
        put("permission.credential_propagation", pb.CREDENTIAL_PROPAGATION_NARROWED),
        MAJOR,
        MINOR,
    ),
    (
        "side_effects",
        add("side_effects", pb.SideEffect(resource="mail/{id}", operation=pb.SIDE_EFFECT_OPERATION_CREATE)),
        MAJOR,
        MINOR,
    ),
    ("execution.network_policy.allowed_domains", add("execution.network_policy.allowed_domains", "a.b"), MAJOR, MINOR),
    ("idempotency.mode", put("idempotency.mode", pb.IDEMPOTENCY_MODE_NATURAL), MINOR, MAJOR),
    ("idempotency.window", wait("idempotency", "window", 86_400), MINOR, MAJOR),
    (
        "idempotency.uncertain_outcome",
        put("idempotency.uncertain_outcome", pb.UNCERTAIN_OUTCOME_RULE_REPEAT),
        MAJOR,
        MINOR,
    ),
    ("compensation_tool", put("compensation_tool", ""), MAJOR, MINOR),
    ("dry_run_supported", put("dry_run_supported", True), MINOR, MAJOR),
    ("execution.cancellation_supported", put("execution.cancellation_supported", True), MINOR, MAJOR),
    ("interface.safety.concurrency_safe", put("interface.safety.concurrency_safe", True), MINOR, MAJOR),
    (
        "interface.safety.requires_user_interaction",
        put("interface.safety.requires_user_interaction", True), MAJOR, MINOR,
    ),
    ("interface.safety.sandbox_tier", put("interface.safety.sandbox_tier", pb.SANDBOX_TIER_PROCESS), MAJOR, MINOR),
    ("capability_refs", add("capability_refs", "orders"), MINOR, MAJOR),
    ("output.sensitive_fields", add("output.sensitive_fields", "/echoed"), MINOR, MAJOR),
    ("output.paginated", put("output.paginated", True), MAJOR, MAJOR),
    ("input.argument_mode", put("input.argument_mode", pb.ARGUMENT_MODE_TEXT), MAJOR, MAJOR),
    ("input.mutation_policy", put("input.mutation_policy", pb.INPUT_MUTATION_POLICY_DEFAULTS), MINOR, MAJOR),
    ("title", put("title", "Another title"), PATCH, PATCH),
    ("description", put("description", "Says the same in other words."), PATCH, PATCH),
    ("execution.entry_point", put("execution.entry_point", "https://two.example.com"), PATCH, PATCH),
    ("tags", add("tags", "more"), PATCH, PATCH),
]  # fmt: skip


@pytest.mark.parametrize(("path", "edit", "there", "back"), CHANGES, ids=[row[0] for row in CHANGES])
def test_a_change_asks_for_its_bump_both_ways(path: str, edit: Edit, there: Bump, back: Bump) -> None:
    old, new = writer(), edited(writer(), edit)
    bump, differences = found(old, new)
    assert bump is there
    assert {where for where, _ in differences} == {path}
    assert found(new, old)[0] is back


def test_a_promise_breaks_when_it_becomes_slower() -> None:
    fast, slow = (edited(writer(), wait("sla", "latency_p99", seconds)) for seconds in (1, 2))
    assert found(fast, slow)[0] is MAJOR
    assert found(slow, fast)[0] is MINOR


def test_nothing_but_the_number_and_its_log_is_no_change() -> None:
    assert found(reader(), reader(version="1.0.1", changelog="again")) == (Bump.NONE, set())


def test_what_the_author_calls_breaking_breaks() -> None:
    assert found(reader(), reader(breaking_changes=True)) == (MAJOR, {("breaking_changes", "breaking")})


SCHEMAS: list[tuple[str, dict[str, Any], dict[str, Any], Bump]] = [
    ("an optional argument", {"input": {"properties": {**INPUT["properties"], "more": {}}}}, {}, MINOR),  # type: ignore[dict-item]
    ("a required argument", {"input": {"required": ["text", "times"]}}, {}, MAJOR),
    ("longer text", {"input": {"properties": {**PROPERTIES, "text": {"type": "string", "maxLength": 40}}}}, {}, MINOR),
    ("shorter text", {"input": {"properties": {**PROPERTIES, "text": {"type": "string", "maxLength": 4}}}}, {}, MAJOR),
    ("an argument less", {"input": {"properties": {"text": INPUT["properties"]["text"]}}}, {}, MAJOR),  # type: ignore[index]
    ("other words", {"input": {"description": "the same"}}, {}, Bump.NONE),
    ("the same, written otherwise", {"input": {"allOf": [{}], "required": ["text"]}}, {}, Bump.NONE),
    ("a new field of the result", {}, {"properties": {**OUTPUT["properties"], "at": {"type": "string"}}}, MINOR),  # type: ignore[dict-item]
    ("a field less", {}, {"properties": {}, "required": []}, MAJOR),
    ("a promise less", {}, {"required": []}, MAJOR),
    ("another type", {}, {"properties": {"echoed": {"type": "integer"}}}, MAJOR),
    ("a narrower result", {}, {"properties": {"echoed": {"type": "string", "maxLength": 4}}}, MINOR),
]  # fmt: skip


@pytest.mark.parametrize(("name", "into", "out", "bump"), SCHEMAS, ids=[row[0] for row in SCHEMAS])
def test_a_schema_asks_for_its_bump(name: str, into: dict[str, Any], out: dict[str, Any], bump: Bump) -> None:
    new = reader()
    new.input.schema = dump({**INPUT, **into.get("input", {})})
    new.output.schema = dump({**OUTPUT, **out})
    assert found(reader(), new)[0] is bump


def test_an_optional_field_that_results_lose_breaks_its_readers_though_no_schema_is_broken() -> None:
    old, new = reader(), reader()
    shut = {**OUTPUT, "additionalProperties": False}
    old.output.schema = dump({**shut, "properties": {**OUTPUT["properties"], "at": {}}})  # type: ignore[dict-item]
    new.output.schema = dump(shut)
    assert ("output.schema#/at", "breaking") in found(old, new)[1]


def test_a_required_argument_with_an_applied_default_is_compatible() -> None:
    new = reader()
    properties = {**INPUT["properties"], "unit": {"type": "string", "default": "m"}}  # type: ignore[dict-item]
    new.input.schema = dump({**INPUT, "properties": properties, "required": ["text", "unit"]})
    assert found(reader(), new)[0] is MAJOR
    new.input.mutation_policy = pb.INPUT_MUTATION_POLICY_DEFAULTS
    assert found(reader(), new)[0] is MINOR
    properties["unit"] = {"type": "string", "default": 5}  # type: ignore[dict-item]
    new.input.schema = dump({**INPUT, "properties": properties, "required": ["text", "unit"]})
    assert found(reader(), new)[0] is MAJOR


def completed(required: list[str], *, more: dict[str, Any] | None = None, **properties: Any) -> pb.ToolManifest:
    """A tool for whose arguments the mesh applies defaults."""
    message = reader()
    message.input.mutation_policy = pb.INPUT_MUTATION_POLICY_DEFAULTS
    message.input.schema = dump(
        {**INPUT, "properties": {**INPUT["properties"], **properties}, "required": required, **(more or {})}  # type: ignore[dict-item]
    )  # type: ignore[dict-item]
    return message


UNIT = {"type": "string", "default": "m"}


@pytest.mark.parametrize(
    "new",
    [
        completed(["text", "unit"], unit={"type": "string"}),
        completed(["text", "unit"], unit={"type": "string", "default": 5}),
        completed(["text"], unit={"type": "string", "default": 5}),
        completed(["text"], unit=UNIT, more={"dependentRequired": {"unit": ["times"]}}),
    ],
    ids=["no default", "a wrong one", "a wrong one that nobody asks for", "something beside it"],
)
@pytest.mark.parametrize("unit", [UNIT, {"$ref": "#/$defs/unit"}], ids=["its own", "referred to"])
def test_who_leaves_an_argument_to_its_default_may_go_on_doing_so(unit: dict[str, Any], new: pb.ToolManifest) -> None:
    old = completed(["text", "unit"], unit=unit, more={"$defs": {"unit": UNIT}})
    assert found(old, old)[0] is Bump.NONE
    assert found(old, new)[0] is MAJOR


def test_a_default_that_comes_or_goes_is_a_change_of_what_happens() -> None:
    without, within = completed(["text"], unit={"type": "string"}), completed(["text"], unit=UNIT)
    assert found(without, within) == (MINOR, {("input.schema#/properties/unit", "additive")})
    assert found(within, without) == (MINOR, {("input.schema#/properties/unit", "additive")})


def test_another_default_is_a_change_of_what_happens() -> None:
    old, new = reader(), reader()
    for message, default in ((old, 1), (new, 2)):
        properties = {**INPUT["properties"], "times": {"type": "integer", "minimum": 1, "default": default}}  # type: ignore[dict-item]
        message.input.schema = dump({**INPUT, "properties": properties})
    assert found(old, new) == (MINOR, {("input.schema#/properties/times", "additive")})


def test_internal_fields_are_not_required_of_callers() -> None:
    old, new = reader(), reader()
    for message, names in ((old, ["text"]), (new, ["text", "tenant"])):
        properties = {**INPUT["properties"], "tenant": {"type": "string"}}  # type: ignore[dict-item]
        message.input.runtime_schema = dump({**INPUT, "properties": properties, "required": names})
        message.input.internal_only_fields.append("/tenant")
    assert found(old, new) == (Bump.NONE, set())
