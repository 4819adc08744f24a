"""NegotiateSchema through the real server: full, partial and no match."""

from __future__ import annotations

from typing import Any

from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import Reason
from libs.common.json.jsonio import dump
from services.registry.tests.calls import PATIENCE, refusal
from services.registry.tests.conftest import Replica
from services.registry.tests.manifests import INPUT, reader

FULL, PARTIAL, NOT = pb.SCHEMA_MATCH_FULL, pb.SCHEMA_MATCH_PARTIAL, pb.SCHEMA_MATCH_INCOMPATIBLE
TEXT, COUNT = {"type": "string", "maxLength": 10}, {"type": "integer", "minimum": 1}


def expected(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def negotiate(stub: Any, send: Any = None, read: Any = None, **more: Any) -> Any:
    request = pb.NegotiateSchemaRequest(
        tool="acme.find_order",
        input_schema=b"" if send is None else dump(send),
        output_schema=b"" if read is None else dump(read),
        **more,
    )
    return stub.NegotiateSchema(request, timeout=PATIENCE)


CASES: list[tuple[Any, Any, Any, list[str]]] = [
    (None, None, FULL, []),
    (expected(["text"], text=TEXT), None, FULL, []),
    (expected(["text"], text=TEXT, times=COUNT), expected(["echoed"], echoed={"type": "string"}), FULL, []),
    # The agent would send an unknown field.
    (expected(["text"], text=TEXT, unit={"type": "string"}), None, PARTIAL, ["input#/properties/unit"]),
    (expected(["text", "unit"], text=TEXT, unit={"type": "string"}), None, NOT, ["input#/properties/unit"]),
    # The agent may send more than the tool accepts.
    (expected(["text"], text=TEXT, times={"type": "integer"}), None, PARTIAL, ["input#/properties/times"]),
    (expected(["text"], text={"type": "string"}), None, NOT, ["input#/properties/text"]),
    # The tool requires a field that the agent does not always send.
    (expected([], text=TEXT), None, NOT, ["input#/text"]),
    # The agent reads a field that the tool does not promise.
    (None, expected(["echoed"], echoed={"type": "string"}, at={}), PARTIAL, ["output#/properties/at"]),
    (None, expected(["echoed", "at"], echoed={"type": "string"}), NOT, ["output#/at"]),
    (None, expected(["echoed"], echoed={"type": "integer"}), NOT, ["output#/properties/echoed"]),
    (None, expected([], echoed={"type": "integer"}), PARTIAL, ["output#/properties/echoed"]),
    # An expectation that is not a plain object is required as a whole.
    (None, {"anyOf": [{"type": "object"}, {"type": "null"}]}, FULL, []),
    (None, {"type": "array"}, NOT, ["output#"]),
]


async def test_every_answer(registry: Replica) -> None:
    stub = registry.stub()
    stored = await stub.RegisterTool(pb.RegisterToolRequest(manifest=reader()), timeout=PATIENCE)
    for send, read, match, missing in CASES:
        answer = await negotiate(stub, send, read)
        assert (answer.match, [finding.path for finding in answer.missing]) == (match, missing)
        assert (answer.version, answer.digest) == (stored.version.name, stored.version.digest)


async def test_the_version_is_the_one_that_the_constraint_means(registry: Replica) -> None:
    stub = registry.stub()
    for version in ("1.0.0", "2.0.0"):
        await stub.RegisterTool(pb.RegisterToolRequest(manifest=reader(version=version)), timeout=PATIENCE)
    answer = await negotiate(stub, version_constraint="1.x")
    assert answer.version.endswith("/versions/1.0.0")
    error = await refusal(negotiate(stub, version_constraint="^3"))
    assert error.reason is Reason.TOOL_VERSION_NOT_FOUND


async def test_what_the_mesh_fills_in_is_not_asked_of_the_agent(registry: Replica) -> None:
    stub, manifest = registry.stub(), reader()
    properties = {**INPUT["properties"], "unit": {"type": "string", "default": "m"}}  # type: ignore[dict-item]
    manifest.input.schema = dump({**INPUT, "properties": properties, "required": ["text", "unit"]})
    manifest.input.mutation_policy = mpb.INPUT_MUTATION_POLICY_DEFAULTS
    await stub.RegisterTool(pb.RegisterToolRequest(manifest=manifest), timeout=PATIENCE)
    assert (await negotiate(stub, expected(["text"], text=TEXT))).match == FULL
    assert (await negotiate(stub, expected(["unit"], unit={"type": "string"}))).match == NOT


async def test_an_expectation_that_is_no_schema_is_refused(registry: Replica) -> None:
    stub = registry.stub()
    await stub.RegisterTool(pb.RegisterToolRequest(manifest=reader()), timeout=PATIENCE)
    refused = {
        b"{": Reason.INVALID_JSON,
        b'{"type":"objekt"}': Reason.INVALID_REQUEST,
        b'{"$ref":"https://example.com/a.json"}': Reason.INVALID_REQUEST,
        b'{"$ref":"#"}': Reason.INVALID_REQUEST,
        b"true": Reason.INVALID_REQUEST,
    }
    for send, reason in refused.items():
        request = pb.NegotiateSchemaRequest(tool="acme.find_order", input_schema=send)
        assert (await refusal(stub.NegotiateSchema(request, timeout=PATIENCE))).reason is reason
