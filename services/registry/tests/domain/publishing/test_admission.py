"""The admission rules, violated one at a time and all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.jsonio import dump
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import manifest_of
from services.registry.domain.publishing.admission import violations
from services.registry.tests.manifests import INPUT, reader, writer

CHECKER = JsonSchemaChecker()
Spoil = Callable[[pb.ToolManifest], Any]


def broken(message: pb.ToolManifest) -> set[tuple[str, str]]:
    return {(v.path.removeprefix("manifest."), v.rule) for v in violations(manifest_of(message), CHECKER)}


def irreversible() -> pb.ToolManifest:
    message = writer(mutation_class=pb.MUTATION_CLASS_WRITE_IRREVERSIBLE, dry_run_supported=True)
    message.ClearField("compensation_tool")
    return message


def input_schema(schema: Any) -> Spoil:
    return lambda m: setattr(m.input, "schema", dump(schema))


def output_schema(schema: Any) -> Spoil:
    def spoil(message: pb.ToolManifest) -> None:
        message.output.schema = dump(schema)
        del message.input.examples[:]

    return spoil


def duration(part: str, field: str, seconds: float) -> Spoil:
    return lambda m: getattr(getattr(m, part), field).CopyFrom(
        Duration(nanos=round(seconds % 1 * 1e9), seconds=int(seconds))
    )


def safety(**claims: Any) -> Spoil:
    return lambda m: m.interface.safety.MergeFrom(pb.SafetyClassification(**claims))


def example(arguments: bytes, result: bytes = b"") -> Spoil:
    return lambda m: m.input.examples.append(pb.ContractExample(arguments=arguments, result=result))


def checkpoints_and_volume(message: pb.ToolManifest) -> None:
    message.execution.checkpoint.enabled = True
    message.permission.required_permissions.append("filesystem:write:reports")


@pytest.mark.parametrize("make", [reader, writer, irreversible])
def test_a_complete_manifest_is_admitted(make: Callable[[], pb.ToolManifest]) -> None:
    assert violations(manifest_of(make()), CHECKER) == []


@pytest.mark.parametrize(
    ("spoil", "path", "rule"),
    [
        # schemas
        (input_schema({"type": "objekt"}), "input.schema#/type", "schema.anyOf"),
        (input_schema({"type": "string"}), "input.schema", "schema.type"),
        (input_schema({"properties": {}}), "input.schema", "schema.type"),
        (input_schema(True), "input.schema", "schema.object"),
        (input_schema([]), "input.schema", "schema.type"),
        (input_schema({**INPUT, "additionalProperties": True}), "input.schema", "schema.strict"),
        (input_schema({**INPUT, "unevaluatedProperties": {}}), "input.schema", "schema.strict"),
        (input_schema({**INPUT, "allOf": [{"additionalProperties": True}]}), "input.schema", "schema.strict"),
        (
            input_schema({**INPUT, "$ref": "#/$defs/a", "$defs": {"a": {"additionalProperties": True}}}),
            "input.schema",
            "schema.strict",
        ),
        (
            input_schema({**INPUT, "$schema": "http://json-schema.org/draft-07/schema#"}),
            "input.schema", "schema.dialect",
        ),
        (lambda m: setattr(m.input, "runtime_schema", b'{"type":"array"}'), "input.runtime_schema", "schema.type"),
        (output_schema({"$ref": "https://example.com/a.json"}), "output.schema#", "schema.reference"),
        (output_schema({"$defs": {"a": {"$ref": "file:///etc/passwd"}}}), "output.schema#/$defs/a", "schema.reference"),
        (output_schema({"$ref": "#/$defs/missing"}), "output.schema#", "schema.reference"),
        (output_schema({"x": {"type": "object"}, "$ref": "#/x"}), "output.schema#", "schema.reference"),
        (
            output_schema({"$defs": {"a": {"$id": "https://example.com/a"}}}),
            "output.schema#/$defs/a", "schema.identity",
        ),
        (output_schema({"pattern": "("}), "output.schema#/pattern", "schema.format"),
        (output_schema({"pattern": "((a{500}){500}){500}"}), "output.schema#/pattern", "schema.pattern"),
        (output_schema({"pattern": "^(?=.*a)"}), "output.schema#/pattern", "schema.pattern"),
        (output_schema({"patternProperties": {"(a)\\1": {}}}), "output.schema#/patternProperties", "schema.pattern"),
        (output_schema({"allOf": [{"$ref": "#"}]}), "output.schema", "schema.circular"),
        (
            output_schema({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}),
            "output.schema", "schema.circular",
        ),
        (
            lambda m: setattr(m.output, "error_schema", b'{"minimum":"x"}'),
            "output.error_schema#/minimum", "schema.type",
        ),
        (lambda m: setattr(m.output, "paginated", True), "output.schema", "output.pages"),
        # fields that only the mesh may set
        (lambda m: m.input.internal_only_fields.append("/text"), "input.internal_only_fields[0]", "input.internal"),
        (lambda m: m.input.internal_only_fields.append("text"), "input.internal_only_fields[0]", "pointer.form"),
        (lambda m: m.output.sensitive_fields.append("/a~2"), "output.sensitive_fields[0]", "pointer.form"),
        # examples
        (example(b'{"text":5}'), "input.examples[1].arguments#/text", "example.type"),
        (example(b'{"times":1}'), "input.examples[1].arguments", "example.required"),
        (example(b'{"text":"a","extra":1}'), "input.examples[1].arguments", "example.unevaluatedProperties"),
        (example(b'{"text":"a"}', b"{}"), "input.examples[1].result", "example.required"),
        (example(b'{"text":"a"}', b"null"), "input.examples[1].result", "example.type"),
        # authority
        (lambda m: m.permission.ClearField("required_scopes"), "permission.required_scopes", "authorization.scope"),
        (
            lambda m: setattr(m.execution, "runner", pb.RUNNER_KIND_BUILTIN),
            "execution.runner",
            "runner.reserved",
        ),
        (safety(sandbox_tier=pb.SANDBOX_TIER_IN_PROCESS), "interface.safety.sandbox_tier", "sandbox.reserved"),
        # effects
        (
            lambda m: m.side_effects.append(pb.SideEffect(resource="a", operation=pb.SIDE_EFFECT_OPERATION_CREATE)),
            "side_effects",
            "side_effects.forbidden",
        ),
        # time
        (duration("execution", "timeout_default", 5.001), "execution.timeout_default", "timeout.class"),
        (duration("execution", "timeout_max", 6), "execution.timeout_max", "timeout.class"),
        (duration("idempotency", "window", 3599), "idempotency.window", "idempotency.window"),
        (duration("sla", "latency_p95", 5.001), "sla.latency_p95", "sla.timeout"),
        (lambda m: [duration("sla", f, s)(m) for f, s in (("latency_p50", 2), ("latency_p99", 1))],
         "sla.latency_p99", "sla.order"),
        # costs
        (input_schema({**INPUT, "$defs": {"a": {"x-token-cost": -1}}}),
         "input.schema#/$defs/a/x-token-cost", "schema.token_cost"),
        (input_schema({**INPUT, "x-token-cost": True}), "input.schema#/x-token-cost", "schema.token_cost"),
        (input_schema({**INPUT, "x-token-cost": 1.5}), "input.schema#/x-token-cost", "schema.token_cost"),
        # form
        (lambda m: setattr(m, "title", "a\0b"), "title", "text.no_null"),
        (lambda m: m.annotations.update({"a\0b": "c"}), "annotations", "text.no_null"),
        (lambda m: setattr(m, "version", "1.0.0-rc.01"), "version", "version.identifier"),
        (lambda m: setattr(m, "version", "1.0.0-a..b"), "version", "version.identifier"),
        (lambda m: setattr(m, "version", "12345678901.0.0"), "version", "version.numbers"),
        (lambda m: m.aliases.append("ab"), "aliases[0]", "alias.length"),
        (lambda m: m.ClearField("observability"), "observability.audit_detail", "observability.required"),
        (lambda m: m.annotations.update({str(n): "x" * 65_536 for n in range(16)}), "manifest", "manifest.size"),
    ],
)  # fmt: skip
def test_each_rule_reports_its_violation_for_a_read_only_tool(spoil: Spoil, path: str, rule: str) -> None:
    message = reader()
    spoil(message)
    assert (path, rule) in broken(message)


@pytest.mark.parametrize(
    ("make", "spoil", "path", "rule"),
    [
        (writer, lambda m: m.ClearField("side_effects"), "side_effects", "side_effects.required"),
        (writer, lambda m: m.ClearField("idempotency"), "idempotency", "idempotency.required"),
        (writer, lambda m: m.ClearField("compensation_tool"), "compensation_tool", "compensation.required"),
        (writer, checkpoints_and_volume, "execution.checkpoint.enabled", "checkpoint.volumes"),
        (writer, lambda m: setattr(m, "compensation_tool", "Not A Name"), "compensation_tool", "compensation.name"),
        (writer, safety(read_only=True), "interface.safety.read_only", "safety.contradiction"),
        (writer, duration("execution", "cache_ttl", 5), "execution.cache_ttl", "cache.read_only"),
        (writer, duration("execution", "stale_ttl", 5), "execution.stale_ttl", "cache.stale"),
        (reader, duration("execution", "stale_ttl", 5), "execution.stale_ttl", "cache.stale"),
        (
            writer,
            lambda m: setattr(m.idempotency, "uncertain_outcome", pb.UNCERTAIN_OUTCOME_RULE_QUERY_STATUS),
            "idempotency.status_tool",
            "idempotency.status_tool",
        ),
        (irreversible, lambda m: m.ClearField("dry_run_supported"), "dry_run_supported", "dry_run.required"),
    ],
)
def test_each_rule_reports_exactly_its_violation_for_a_writing_tool(
    make: Callable[[], pb.ToolManifest], spoil: Spoil, path: str, rule: str
) -> None:
    message = make()
    spoil(message)
    assert broken(message) == {(path, rule)}


def test_a_claim_that_nothing_is_destroyed_contradicts_a_deletion() -> None:
    message = writer()
    message.side_effects[0].operation = pb.SIDE_EFFECT_OPERATION_DELETE
    message.interface.safety.non_destructive = True
    assert broken(message) == {("interface.safety.non_destructive", "safety.contradiction")}


@pytest.mark.parametrize(
    ("timeout_class", "seconds", "fits"),
    [
        (pb.TIMEOUT_CLASS_INTERACTIVE, 0.5, True),
        (pb.TIMEOUT_CLASS_INTERACTIVE, 0.501, False),
        (pb.TIMEOUT_CLASS_STANDARD, 5, True),
        (pb.TIMEOUT_CLASS_STANDARD, 5.001, False),
        (pb.TIMEOUT_CLASS_LONG_RUNNING, 300, True),
        (pb.TIMEOUT_CLASS_LONG_RUNNING, 300.001, False),
        (pb.TIMEOUT_CLASS_ASYNC, 86_400, True),
    ],
)
def test_timeouts_stay_within_their_class(timeout_class: Any, seconds: float, fits: bool) -> None:
    message = reader()
    message.execution.timeout_class = timeout_class
    duration("execution", "timeout_max", seconds)(message)
    assert (broken(message) == set()) is fits


def test_the_default_timeout_is_not_above_the_largest() -> None:
    message = reader()
    duration("execution", "timeout_default", 3)(message)
    duration("execution", "timeout_max", 2)(message)
    assert broken(message) == {("execution.timeout_default", "timeout.order")}


def test_keys_of_long_calls_are_remembered_for_twice_their_time() -> None:
    message = writer()
    message.execution.timeout_class = pb.TIMEOUT_CLASS_ASYNC
    duration("execution", "timeout_max", 7200)(message)
    duration("idempotency", "window", 14_399)(message)
    assert broken(message) == {("idempotency.window", "idempotency.window")}
    duration("idempotency", "window", 14_400)(message)
    assert broken(message) == set()


def test_a_natural_repetition_needs_no_key() -> None:
    message = writer()
    message.idempotency.mode = pb.IDEMPOTENCY_MODE_NATURAL
    assert broken(message) == set()


def test_what_ships_with_the_mesh_may_be_builtin() -> None:
    message = reader("core.echo")
    message.execution.runner = pb.RUNNER_KIND_BUILTIN
    message.interface.safety.sandbox_tier = pb.SANDBOX_TIER_IN_PROCESS
    assert broken(message) == set()


def test_internal_fields_may_be_in_the_runtime_schema() -> None:
    message = reader()
    message.input.runtime_schema = dump({**INPUT, "properties": {**INPUT["properties"], "tenant": {}}})  # type: ignore[dict-item]
    message.input.internal_only_fields.append("/tenant")
    assert broken(message) == set()


def test_references_that_double_with_every_level_are_refused() -> None:
    definitions = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    message = reader()
    output_schema({"$ref": "#/$defs/a0", "$defs": {**definitions, "a40": {"minimum": 1}}})(message)
    assert broken(message) == {("output.schema", "schema.size")}


def test_a_schema_with_too_many_parts_is_refused() -> None:
    message = reader()
    output_schema({"properties": {str(n): {} for n in range(6000)}})(message)
    assert broken(message) == {("output.schema", "schema.size")}


def test_an_example_may_leave_out_what_the_mesh_fills_in_and_nothing_else() -> None:
    def asking(default: Any, policy: Any) -> pb.ToolManifest:
        message = reader()
        properties = {**INPUT["properties"], "unit": {"type": "string", "default": default}}  # type: ignore[dict-item]
        input_schema({**INPUT, "properties": properties, "required": ["text", "unit"]})(message)
        message.input.mutation_policy = policy
        return message

    assert broken(asking("m", pb.INPUT_MUTATION_POLICY_DEFAULTS)) == set()
    assert broken(asking(5, pb.INPUT_MUTATION_POLICY_DEFAULTS)) == {("input.examples[0].arguments", "example.required")}
    assert broken(asking("m", pb.INPUT_MUTATION_POLICY_NONE)) == {("input.examples[0].arguments", "example.required")}


@pytest.mark.parametrize("field", ["schema", "runtime_schema"])
def test_objects_inside_of_arguments_say_which_names_they_take(field: str) -> None:
    message = reader()
    del message.input.examples[:]
    address = {"type": "object", "properties": {"city": {"type": "string"}}}
    for inner, expected in (
        (address, {(f"input.{field}#/properties/to", "schema.open_object")}),
        ({"type": "object"}, {(f"input.{field}#/properties/to", "schema.open_object")}),
        ({**address, "additionalProperties": False}, set()),
        ({**address, "additionalProperties": True}, set()),
    ):
        setattr(message.input, field, dump({"type": "object", "properties": {"to": inner}}))
        assert broken(message) == expected
        assert violations(manifest_of(message), CHECKER, imported=True) == []


def test_nested_free_form_objects_are_not_arguments_and_stay_allowed() -> None:
    schema = {"type": "object", "properties": {"labels": {"type": "object", "additionalProperties": True}}}
    message = reader()
    del message.input.examples[:]
    input_schema(schema)(message)
    assert broken(message) == set()


@pytest.mark.parametrize(("make", "way_back"), [(writer, "compensation_tool"), (irreversible, "dry_run_supported")])
def test_a_tool_without_a_way_back_is_admitted_if_a_person_approves_every_call(
    make: Callable[[], pb.ToolManifest], way_back: str
) -> None:
    message = make()
    message.ClearField(cast("Any", way_back))
    message.permission.approval = pb.APPROVAL_REQUIREMENT_BY_POLICY
    assert {path for path, _ in broken(message)} == {way_back}
    message.permission.approval = pb.APPROVAL_REQUIREMENT_ALWAYS
    assert not broken(message)


def test_promises_in_order_and_within_the_timeout_are_admitted() -> None:
    message = reader()
    for field, seconds in (("latency_p50", 0.2), ("latency_p95", 1), ("latency_p99", 1)):
        duration("sla", field, seconds)(message)
    message.sla.availability = 0.999
    assert broken(message) == set()
    duration("execution", "timeout_max", 0.5)(message)
    assert broken(message) == {("sla.latency_p95", "sla.timeout"), ("sla.latency_p99", "sla.timeout")}


@pytest.mark.parametrize("make", [writer, irreversible])
def test_a_tool_that_writes_needs_an_example_unless_an_upstream_defined_it(make: Callable[[], pb.ToolManifest]) -> None:
    message = make()
    del message.input.examples[:]
    assert broken(message) == {("input.examples", "examples.required")}
    message.permission.approval = pb.APPROVAL_REQUIREMENT_ALWAYS
    assert broken(message) == {("input.examples", "examples.required")}
    assert violations(manifest_of(message), CHECKER, imported=True) == []
    read = reader()
    del read.input.examples[:]
    assert broken(read) == set()


def test_everything_wrong_is_listed_at_once() -> None:
    message = writer()
    message.ClearField("side_effects")
    message.ClearField("idempotency")
    message.ClearField("compensation_tool")
    message.permission.ClearField("required_scopes")
    message.input.schema = b'{"type":"objekt"}'
    duration("execution", "timeout_default", 60)(message)
    assert {violation.rule for violation in violations(manifest_of(message), CHECKER)} == {
        "side_effects.required",
        "idempotency.required",
        "compensation.required",
        "authorization.scope",
        "schema.anyOf",
        "schema.type",
        "timeout.class",
    }


def test_a_violation_never_holds_the_value_that_caused_it() -> None:
    message = reader()
    example(b'{"text":"sesame-open-sesame-open-sesame","times":"sesame"}')(message)
    found = violations(manifest_of(message), CHECKER)
    assert found
    assert not any("sesame" in violation.message for violation in found)
