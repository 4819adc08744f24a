"""Forwarded methods: every RPC of the table takes what its schema allows, and only unary RPCs are in it."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from toolmesh.comments import COMMENTS
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope
from toolmesh.executor.v1 import key_service_pb2
from toolmesh.executor.v1.invocation_pb2 import INVOCATION_STATE_QUEUED, INVOCATION_STATE_RUNNING

from libs.common.errors import MeshError, Reason
from services.gateway.contract import METHODS, Parameters, describe, schema_of
from services.gateway.convert import JSON_FIELDS
from services.gateway.forwarded.methods import methods
from services.gateway.forwarded.request import RequestBuilder
from services.gateway.forwarded.schema import RequestSchemas
from services.gateway.forwarded.table import FORWARDED

BY_NAME = {method.name: method for method in METHODS}
NAME = "invocations/00000000-0000-7000-8000-000000000000"


def build(method: str, params: dict[str, Any]) -> Any:
    """Check and build as a call does."""
    forwarded = FORWARDED[method]
    checked = Parameters(BY_NAME[method]).check(params)
    return RequestBuilder(forwarded.rpc.input_type, JSON_FIELDS, forwarded.inline).build(checked)


def refused_paths(method: str, params: dict[str, Any]) -> set[str]:
    with pytest.raises(MeshError) as caught:
        build(method, params)
    assert caught.value.reason is Reason.INVALID_PARAMS
    return {violation.path for violation in caught.value.violations}


def test_every_method_is_a_unary_rpc_with_words_for_all_it_takes() -> None:
    for method in methods():
        rpc = FORWARDED[method.name].rpc
        assert not rpc.client_streaming
        assert not rpc.server_streaming
        assert method.summary == COMMENTS[rpc.full_name]
        assert all(param.description for param in method.params)
        jsonschema_rs.Draft202012Validator(schema_of(method))
    assert {entry["name"] for entry in describe(METHODS)["methods"]} >= FORWARDED.keys()


def test_the_call_of_a_start_stands_beside_its_own_parameters() -> None:
    params = {"tool": "echo", "arguments": {"n": 2**64 - 1}, "priority": 3.0, "max_duration_ms": 1500.5}
    request = build("invocations.start", params)
    assert request.request.tool == "echo"
    assert request.request.arguments == b'{"n":18446744073709551615}'
    assert request.request.priority == 3
    assert request.max_duration.ToNanoseconds() == 1_500_500_000


def test_words_times_and_lists_become_the_fields_of_the_request() -> None:
    request = build("invocations.list", {"states": ["running", "queued"], "start_time": "2026-11-17T10:00:00.5+01:00"})
    assert [*request.states] == [INVOCATION_STATE_RUNNING, INVOCATION_STATE_QUEUED]
    assert request.start_time.ToJsonString() == "2026-11-17T09:00:00.500Z"
    assert not request.HasField("end_time")


def test_json_in_bytes_is_passed_on_as_json() -> None:
    request = build("keys.settle", {"name": "keys/ab-1", "reason": "seen", "result": {"id": [1, None]}})
    assert isinstance(request, key_service_pb2.SettleKeyRequest)
    assert request.result == b'{"id":[1,null]}'
    answer = build("invocations.resume", {"name": NAME, "input": {"input_id": "q", "content": {"n": 3}}})
    assert (answer.input.input_id, answer.input.content) == ("q", b'{"n":3}')


def test_null_is_an_unset_field_only_where_a_schema_allows_it() -> None:
    assert refused_paths("invocations.list", {"tool": None}) == {"/tool"}


@pytest.mark.parametrize(
    ("method", "params", "paths"),
    [
        ("invocations.get", {}, {"/name"}),
        ("invocations.get", {"name": "invocations/../keys"}, {"/name"}),
        ("invocations.list", {"states": ["unspecified"]}, {"/states/0"}),
        ("invocations.list", {"states": ["running", "running"]}, {"/states"}),
        ("invocations.list", {"start_time": "yesterday"}, {"/start_time"}),
        ("invocations.list", {"page_size": 1e20}, {"/page_size"}),
        ("invocations.start", {"tool": "echo", "max_duration_ms": 1e20}, {"/max_duration_ms"}),
        ("invocations.start", {"tool": "echo", "max_duration_ms": -1}, {"/max_duration_ms"}),
        ("invocations.start", {"request": {"tool": "echo"}}, {"/request", "/tool"}),
        ("invocations.wait", {"name": NAME, "timeout_ms": 300_001}, {"/timeout_ms"}),
        ("invocations.resume", {"name": NAME, "input": {"input_id": ""}}, {"/input/input_id"}),
        ("keys.settle", {"name": "keys/ab-1", "reason": "seen", "absent": {"x": 1}}, {"/absent/x"}),
    ],
)
def test_what_the_contract_refuses_is_refused_at_its_place(
    method: str, params: dict[str, Any], paths: set[str]
) -> None:
    assert refused_paths(method, params) == paths


def test_of_several_targets_none_is_demanded() -> None:
    assert build("tokens.revoke", {"subject": "did:web:example.com:ada"}).subject == "did:web:example.com:ada"


def test_a_map_is_an_object_of_values() -> None:
    kind = ErrorEnvelope.DESCRIPTOR
    schema = RequestSchemas(()).of(kind.fields_by_name["metadata"])
    assert schema["additionalProperties"]["type"] == "string"
    built = RequestBuilder(kind, ()).build({"metadata": {"a": "b"}})
    assert isinstance(built, ErrorEnvelope)
    assert built.metadata == {"a": "b"}
