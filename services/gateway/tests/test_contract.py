"""The table of methods: complete, consistent with the contract of the peers, and unable to leak what a caller sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from buf.validate import validate_pb2
from toolmesh.audit.v1.audit_service_pb2 import GetRecordRequest
from toolmesh.executor.v1.executor_service_pb2 import InvokeRequest
from toolmesh.registry.v1.discovery_service_pb2 import GetToolSchemasRequest
from toolmesh.registry.v1.registry_service_pb2 import GetToolRequest, ListToolsRequest, ResolveToolRequest

from libs.common.errors import MeshError, Reason
from services.gateway.contract import METHODS, Parameters, describe, schema_of
from services.gateway.forwarded.table import FORWARDED
from services.gateway.handlers import Handlers
from services.gateway.policy import POLICY

BY_NAME = {method.name: method for method in METHODS}


def test_every_method_has_a_row_a_handler_and_a_description() -> None:
    handlers = {*Handlers(*[None] * 7).by_method(), *FORWARDED}  # type: ignore[arg-type]
    described = [method["name"] for method in describe(METHODS)["methods"]]
    assert set(POLICY) == handlers == set(described) == set(BY_NAME)


def test_the_description_satisfies_the_published_meta_schema() -> None:
    folder = Path(__file__).parent / "openrpc"
    meta, json_schema = (json.loads((folder / name).read_text()) for name in ("meta_schema.json", "json_schema.json"))
    for document in (meta, json_schema):
        # Their dialect is draft 7 under another name.
        document["$schema"] = "http://json-schema.org/draft-07/schema#"
    resources = [(f"https://meta.json-schema.tools{end}", json_schema) for end in ("", "/")]
    registry = jsonschema_rs.Registry(resources, draft=jsonschema_rs.Draft7)
    validator = jsonschema_rs.Draft7Validator(meta, registry=registry)
    document = describe(METHODS)
    assert [(error.instance_path, error.message) for error in validator.iter_errors(document)] == []
    assert not validator.is_valid({**document, "openrpc": "9"})
    assert not validator.is_valid({**document, "methods": [{"name": "x"}]})


def test_no_deadline_exceeds_what_a_caller_could_ask_for() -> None:
    assert all(0 < row.deadline <= 300 for row in POLICY.values())


@pytest.mark.parametrize(
    ("method", "message", "renamed"),
    [
        ("tools.invoke", InvokeRequest, {}),
        ("tools.preview", InvokeRequest, {}),
        ("tools.list", ListToolsRequest, {}),
        ("tools.get", GetToolRequest, {"tool": "name"}),
        ("tools.resolve", ResolveToolRequest, {"version": "version_constraint"}),
        ("tools.schemas", GetToolSchemasRequest, {}),
        ("audit.get", GetRecordRequest, {}),
    ],
)
def test_what_the_table_allows_the_peers_contract_allows_too(
    method: str, message: Any, renamed: dict[str, str]
) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    own = {"timeout_ms", "arguments", "detail"}
    for name, schema in schema_of(BY_NAME[method])["properties"].items():
        if name in own:
            continue
        rules = fields[renamed.get(name, name)].GetOptions().Extensions[validate_pb2.field]
        if rules.HasField("string"):
            assert schema["maxLength"] == rules.string.max_len
            assert schema.get("minLength", 0) == rules.string.min_len
            assert schema.get("pattern", "") == rules.string.pattern
        elif rules.HasField("int32"):
            assert (schema["minimum"], schema["maximum"]) == (rules.int32.gte + 1, rules.int32.lte)
        elif rules.HasField("repeated"):
            assert schema["maxItems"] == rules.repeated.max_items
        else:
            assert schema["type"] == "boolean"


def test_a_call_of_a_group_takes_what_a_call_takes() -> None:
    alone = schema_of(BY_NAME["tools.invoke"])["properties"]
    grouped = schema_of(BY_NAME["tools.invoke_group"])["properties"]["calls"]["items"]["properties"]
    assert grouped.keys() - {"depends_on", "on_failure"} == alone.keys() - {"timeout_ms"}
    assert all(grouped[name] == alone[name] for name in grouped.keys() & alone.keys())


def check(method: str, params: Any) -> Any:
    return Parameters(BY_NAME[method]).check(params)


def refusal(method: str, params: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        check(method, params)
    assert caught.value.reason is Reason.INVALID_PARAMS
    return caught.value


def test_good_parameters_come_back_unchanged() -> None:
    params = {"tool": "echo", "arguments": {"deep": [{"n": 2**64 - 1}]}, "timeout_ms": 300_000}
    assert check("tools.invoke", params) is params


def test_positional_parameters_are_refused() -> None:
    assert [v.path for v in refusal("tools.get", ["echo"]).violations] == [""]


def test_violations_point_into_the_parameters_and_never_show_the_value() -> None:
    secret = "s3cret" * 100
    error = refusal("tools.list", {"tags": ["fine", secret], "namespace": secret, "page_size": True})
    assert {v.path for v in error.violations} == {"/tags/1", "/namespace", "/page_size"}
    assert "s3cret" not in " ".join(v.message for v in error.violations)


def test_absurdly_many_unknown_parameters_make_a_bounded_answer() -> None:
    error = refusal("rpc.discover", {("x" * 1000) + str(n): n for n in range(500)})
    assert len(error.violations) == 50
    assert all(len(v.path) < 200 for v in error.violations)
