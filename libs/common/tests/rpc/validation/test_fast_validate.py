from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import protovalidate
import pytest
from buf.validate import validate_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from hypothesis import given, settings
from hypothesis import strategies as st
from toolmesh.audit.v1 import audit_service_pb2 as audit
from toolmesh.audit.v1 import usage_service_pb2 as usage
from toolmesh.authz.v1 import authz_service_pb2 as authz
from toolmesh.authz.v1 import capability_token_pb2 as capability
from toolmesh.executor.v1 import executor_service_pb2 as executor
from toolmesh.registry.v1 import registry_service_pb2 as registry

from libs.common.rpc.validation.fast_validate import _of_field as of_field
from libs.common.rpc.validation.fast_validate import passes_fast_validation

VALIDATOR = protovalidate.Validator()
GENERATED = Path(__file__).parents[5] / "gen"
WORDS = (
    "",
    "a",
    "core.echo",
    "did:web:a:b",
    "did:key:\u00e9",
    "tools/core.echo/versions/1.0.0",
    "tools/core.echo",
    "namespaces/acme",
    "namespaces/acme\n",
    "policySets/1",
    "policySets/active",
    "policySets/\u0661",
    "records/0-a",
    "sha256:" + "a" * 64,
    "sha256:" + "a" * 65,
    "1.0.0",
    "read_only",
    "a\tb",
    "x y",
    "\u00fc",
    "2Gi",
)


def kinds() -> Iterator[Descriptor]:
    for path in sorted(GENERATED.glob("toolmesh/*/v1/*_pb2.py")):
        module = import_module(".".join(path.relative_to(GENERATED).with_suffix("").parts))
        yield from module.DESCRIPTOR.message_types_by_name.values()


KINDS = list(kinds())


def numbers_in(rules: Any) -> Iterator[int]:
    for field, value in rules.ListFields():
        if field.message_type is not None and not field.is_repeated:
            yield from numbers_in(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield value


def near(field: FieldDescriptor, most: int = 5_000) -> list[int]:
    """Numbers on and beside every bound of a field, as far as they are small enough to be lengths."""
    bounds = set(numbers_in(field.GetOptions().Extensions[validate_pb2.field]))
    return sorted({n for bound in bounds for n in (bound - 1, bound, bound + 1) if 0 <= n <= most} | {0, 1})


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    lengths = st.sampled_from(near(field))
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(WORDS) | st.builds(lambda letter, n: letter * n, st.sampled_from("a1.\u00e9"), lengths)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.builds(lambda n: b"x" * n, lengths)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return st.sampled_from([0.0, 1.0, -1.0, float("nan"), float("inf")])
    if field.enum_type is not None:
        return st.sampled_from([*field.enum_type.values_by_number, 9999])
    return st.sampled_from(near(field, 2**31 - 1))


def fill(message: Any, draw: Any, depth: int = 0) -> Any:
    for field in message.DESCRIPTOR.fields:
        if draw(st.integers(0, 2)) == 0 or (field.message_type is not None and depth > 2):
            continue
        value = getattr(message, field.name)
        if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is None:
                value[draw(st.sampled_from(["", "a", "B c"]))]
        elif field.is_repeated:
            for _ in range(draw(st.sampled_from([n for n in near(field) if n < 10]))):
                if field.message_type is not None:
                    fill(value.add(), draw, depth + 1)
                else:
                    value.append(draw(values(field)))
        elif field.message_type is not None:
            value.SetInParent()
            fill(value, draw, depth + 1)
        else:
            setattr(message, field.name, draw(values(field)))
    return message


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_what_is_surely_valid_is_valid(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    message = fill(message_factory.GetMessageClass(kind)(), data.draw)
    if passes_fast_validation(kind)(message):
        assert VALIDATOR.collect_violations(message) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.full_name)
def test_each_rule_broken_by_itself_is_found(kind: Descriptor) -> None:
    """One field at a time, every value on and beside its bounds: never sure of what the full check refuses."""
    made = message_factory.GetMessageClass(kind)
    for field in kind.fields:
        if field.message_type is not None:
            continue
        texts = [*WORDS, *("a" * n for n in near(field))]
        tried: list[Any] = {  # type: ignore[assignment]
            FieldDescriptor.TYPE_STRING: texts,
            FieldDescriptor.TYPE_BYTES: [b"x" * n for n in near(field)],
            FieldDescriptor.TYPE_BOOL: [True],
            FieldDescriptor.TYPE_DOUBLE: [-1.0, 2.0, float("nan")],
            FieldDescriptor.TYPE_ENUM: [0, 1, 9999],
        }.get(field.type, near(field, 2**31 - 1))
        for value in tried:
            message = made()
            if field.is_repeated:
                getattr(message, field.name).extend([value])
            else:
                setattr(message, field.name, value)
            if passes_fast_validation(kind)(message):
                assert VALIDATOR.collect_violations(message) == [], (field.name, value)


def timed() -> Iterator[tuple[Descriptor, FieldDescriptor]]:
    for kind in KINDS:
        for field in kind.fields:
            if "duration" in {each.name for each, _ in rules_of(field).ListFields()}:
                yield kind, field


def rules_of(field: FieldDescriptor) -> Any:
    return field.GetOptions().Extensions[validate_pb2.field]


@pytest.mark.parametrize(("kind", "field"), list(timed()), ids=lambda each: each.full_name)
def test_durations_are_rendered_on_and_beside_their_bounds(kind: Descriptor, field: FieldDescriptor) -> None:
    bounds = [
        bound.seconds * 10**9 + bound.nanos
        for rule, bound in rules_of(field).duration.ListFields()
        if rule.name in ("gt", "gte", "lt", "lte")
    ]
    sure = 0
    for nanos in {near for bound in [0, *bounds] for near in (bound - 1, bound, bound + 1, bound + 10**9)}:
        seconds, rest = divmod(nanos, 10**9)
        # As it should be written, and as it should not.
        for parts in ((seconds, rest), (seconds - 1, rest + 10**9), (seconds + 2, rest - 2 * 10**9), (seconds, -rest)):
            message = message_factory.GetMessageClass(kind)()
            getattr(message, field.name).MergeFrom(Duration(seconds=parts[0], nanos=parts[1]))
            broken = [
                found
                for found in VALIDATOR.collect_violations(message)
                if found.proto.field and found.proto.field.elements[0].field_name == field.name
            ]
            told = surely_holds(field, message)
            assert not (told and broken), parts
            sure += told
    assert sure


def surely_holds(field: FieldDescriptor, message: Any) -> bool:
    """Return whether a message is sure as far as one field goes: others may be missing from it."""
    known: dict[str, Any] = {"passes_fast_validation": passes_fast_validation}
    return all(eval(condition, known, {"m": message}) for condition in of_field(field, known))  # noqa: S307


@pytest.mark.parametrize("scopes", [["a"], ["a", "b"], ["a", "a"], ["a", "b", "a"], []])
def test_what_is_named_twice_is_not_sure(scopes: list[str]) -> None:
    message = authz.IssueTokenRequest(
        subject="did:web:a:b", tools=[capability.ToolGrant(tool="*")], scopes=scopes, lifetime=Duration(seconds=1)
    )
    assert passes_fast_validation(message.DESCRIPTOR)(message) == (VALIDATOR.collect_violations(message) == [])


@pytest.mark.parametrize(
    "message",
    [
        executor.InvokeRequest(tool="echo", arguments=b"{}", session_id="s", idempotency_key="k", priority=5),
        registry.ResolveToolRequest(tool="core.echo", version_constraint="^1.0"),
        authz.CheckRequest(
            call=authz.CallFacts(
                tool_version="tools/core.echo/versions/1.0.0",
                tool_digest="sha256:" + "d" * 64,
                mutation_class="read_only",
                required_scopes=["tools:call"],
                tags=["a"],
                invocation_id="01932f3a-7c1e-7000-8000-0000000004d2",
            )
        ),
        audit.AppendRecordsRequest(batch=1, canonical_records=[b"{}"]),
        usage.BatchGetToolUsageRequest(
            requests=[usage.GetToolUsageRequest(name="tools/core.echo", declared_latency=Duration(nanos=5))]
        ),
        authz.IssueTokenRequest(
            subject="did:web:toolmesh.local:users:alice",
            tools=[capability.ToolGrant(tool="*")],
            scopes=["tools:call", "tools:read"],
            lifetime=Duration(seconds=3600),
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_ordinary_calls_are_sure(message: Any) -> None:
    assert passes_fast_validation(message.DESCRIPTOR)(message)


def test_rules_that_are_not_known_are_never_sure() -> None:
    field = descriptor_pb2.FieldDescriptorProto(name="text", number=1)
    field.label, field.type = field.LABEL_OPTIONAL, field.TYPE_STRING
    rules = field.options.Extensions[validate_pb2.field]
    rules.string.max_len, rules.ignore = 3, validate_pb2.IGNORE_IF_ZERO_VALUE
    file = descriptor_pb2.FileDescriptorProto(name="surely_test.proto", package="surely.test", syntax="proto3")
    file.dependency.append("buf/validate/validate.proto")
    file.message_type.add(name="Unknown", field=[field])
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    kind = descriptor_pool.Default().FindMessageTypeByName("surely.test.Unknown")
    made = message_factory.GetMessageClass(kind)
    assert VALIDATOR.collect_violations(made(text="long")) != []
    assert not passes_fast_validation(kind)(made(text="long"))
