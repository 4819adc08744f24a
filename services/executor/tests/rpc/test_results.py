"""Inputs and results through a whole executor: coerced, refused by name, stored, fetched, replayed, used again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc
from toolmesh.executor.v1 import result_envelope_pb2 as epb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump, parse
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.builtin.tool import read_only_manifest
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer, RegistryPeer, credentials
from services.executor.wiring import compose

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 0},
        "path": {"type": "string"},
        "when": {"type": "string"},
    },
    "additionalProperties": False,
}


class Lines:
    """Returns as many bytes as it is asked for, and counts how often it was asked."""

    def __init__(self, tool_id: str = "lines", **changes: Any) -> None:
        self.calls = 0
        self.manifest = read_only_manifest(
            tool_id=tool_id,
            version="1.0.0",
            title="Lines",
            description="Returns as many bytes as it is asked for, in lines.",
            search_hint="many bytes in lines",
            tags=["test"],
            input_schema=SCHEMA,
            output_schema={"type": "object", "properties": {"text": {"type": "string"}, "calls": {"type": "integer"}}},
            examples=[("None", {"size": 0}, {"text": "", "calls": 1})],
        )
        self.manifest.MergeFrom(mpb.ToolManifest(**changes))

    def call(self, arguments: dict[str, Any]) -> Any:
        self.calls += 1
        return {"text": "é" * (arguments.get("size", 0) // 2), "calls": self.calls}


@pytest.fixture
async def mesh(
    pki: Any,
    signer: Any,
    executor_settings: Callable[..., Settings],
    quiet: Log,
) -> AsyncIterator[Any]:
    settings = executor_settings(RESULT_MAX_BYTES="8000000")
    tools = {
        "lines": Lines(
            output=mpb.OutputContract(max_inline_bytes=10_000),
            interface=mpb.ToolInterface(
                semantic_checks=["rfc3339:/when"],
                permission_matchers=[mpb.PermissionMatcher(target=mpb.MATCH_TARGET_PATH, argument_pointer="/path")],
                rendering=mpb.RenderingHints(ui_facing="{/calls} calls"),
            ),
        ),
        "kept_lines": Lines(
            "kept_lines",
            execution=mpb.ExecutionProfile(cache_ttl=Duration(seconds=600)),
        ),
        "fleeting_lines": Lines(
            "fleeting_lines", output=mpb.OutputContract(max_inline_bytes=10_000, persistence_opt_out=True)
        ),
        "broken_lines": Lines("broken_lines", interface=mpb.ToolInterface(semantic_checks=["unheard_of:/a"])),
    }
    application = compose(settings, quiet, Tracing(), clock=SystemClock(), tools=list(tools.values()))
    await application.start()
    async with channel_to(
        "executor", Address("127.0.0.1", application.server.port), credentials(pki, "gateway")
    ) as way:
        stub, token = rpc.ExecutorServiceStub(way), signer.mint()

        def metadata(bearer: str) -> Any:
            return (("authorization", f"Bearer {bearer}"),)

        async def invoke(tool: str, arguments: bytes = b"{}", **fields: Any) -> epb.ResultEnvelope:
            bearer = fields.pop("token", token)
            request = pb.InvokeRequest(tool=tool, arguments=arguments, **fields)
            return (await stub.Invoke(request, metadata=metadata(bearer), timeout=10.0)).result

        async def fetch(stored: epb.PersistedResult, **fields: Any) -> list[pb.FetchResultResponse]:
            bearer = fields.pop("token", token)
            wanted = {"ref": stored.ref, "access_token": stored.access_token, **fields}
            return [
                piece async for piece in stub.FetchResult(pb.FetchResultRequest(**wanted), metadata=metadata(bearer))
            ]

        async with asyncio.timeout(20):
            while not all([await _answers(invoke, name) for name in ("lines", "kept_lines", "fleeting_lines")]):
                continue
        for tool in tools.values():
            tool.calls = 0
        yield SimpleNamespace(invoke=invoke, fetch=fetch, tools=tools)
    await application.stop()


async def _answers(invoke: Any, tool: str) -> bool:
    try:
        await invoke(tool, b'{"size":1}')
    except grpc.aio.AioRpcError:
        return False
    return True


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def test_a_text_that_is_a_number_is_read_as_one_and_the_envelope_says_so(mesh: Any) -> None:
    result = await mesh.invoke("lines", b'{"size":"4"}')
    assert parse(result.structured_content)["text"] == "éé"  # type: ignore[call-overload, index]
    assert list(result.adjusted_arguments) == ["/size"]
    assert [(each.path, each.source, each.reason) for each in result.argument_changes] == [
        ("/size", "coercion", "string to integer")
    ]
    assert result.ui_facing_summary == "1 calls"


@pytest.mark.parametrize(
    ("arguments", "reason", "path"),
    [
        (b'{"size":"1e400"}', Reason.COERCION_FAILED, "/size"),
        (b'{"size":"many"}', Reason.ARGUMENTS_INVALID, "/size"),
        (b'{"path":"../../etc/shadow"}', Reason.INJECTION_DETECTED, "/path"),
        (b'{"when":"tomorrow"}', Reason.ARGUMENTS_INVALID, "/when"),
    ],
)
async def test_what_is_refused_is_refused_by_name_and_on_record(
    mesh: Any, audit: AuditPeer, arguments: bytes, reason: Reason, path: str
) -> None:
    error = await refusal(mesh.invoke("lines", arguments))
    assert (error.reason, [each.path for each in error.violations]) == (reason, [path])
    [record] = audit.about(error.invocation_id)
    assert record.state == "validation_failed"


async def test_a_version_with_an_unknown_check_cannot_be_called(mesh: Any) -> None:
    error = await refusal(mesh.invoke("broken_lines"))
    assert (error.reason, error.metadata["state"]) == (Reason.TOOL_UNAVAILABLE, "broken")


async def test_a_large_result_is_referenced_fetched_and_replayed(mesh: Any, audit: AuditPeer, signer: Any) -> None:
    result = await mesh.invoke("lines", b'{"size":1000000}', idempotency_key="k")
    assert result.structured_content == b""
    [stored] = result.persisted
    pieces = await mesh.fetch(stored)
    content = b"".join(piece.content for piece in pieces)
    assert len(parse(content, max_bytes=1 << 24)["text"]) == 500_000  # type: ignore[call-overload, index]
    assert "sha256:" + hashlib.sha256(content).hexdigest() == stored.digest == pieces[0].digest
    assert len(content) == stored.size_bytes == result.execution.result_size_bytes
    assert content.startswith(stored.preview)
    assert max(len(piece.content) for piece in pieces) <= 256 * 1024
    assert audit.about(result.invocation_id)[-1].result_digest == stored.digest
    again = await mesh.invoke("lines", b'{"size":1000000}', idempotency_key="k")
    assert (again.replayed, again.persisted[0]) == (True, stored)
    assert mesh.tools["lines"].calls == 1
    part = await mesh.fetch(stored, offset=10, max_bytes=5)
    assert part[0].content == content[10:15]
    for wrong in ({"access_token": "x"}, {"token": signer.mint("did:web:toolmesh.local:users:bob")}):
        assert (await refusal(mesh.fetch(stored, **wrong))).reason is Reason.NOT_FOUND
    assert stored.access_token.encode() not in b"".join(each.SerializeToString() for each in audit.records)


async def test_what_may_not_be_stored_is_too_large(mesh: Any) -> None:
    reference = dump({"size": 20_000, "path": "results/0198a0c4-7c3e-7b6a-9d2e-1f0a2b3c4d5e"})
    for tool, arguments, why in (
        ("fleeting_lines", b'{"size":20000}', "opt_out"),
        ("lines", b'{"size":9000000}', "cap"),
        ("lines", reference, "circular"),
    ):
        error = await refusal(mesh.invoke(tool, arguments))
        assert (error.reason, error.metadata["not_stored"]) == (Reason.RESULT_TOO_LARGE, why)


async def test_a_result_is_used_again_by_the_same_caller_until_its_version_changes(
    mesh: Any, registry: RegistryPeer, signer: Any, audit: AuditPeer
) -> None:
    first, again = [await mesh.invoke("kept_lines", b'{"size":2}') for _ in range(2)]
    assert (first.provenance.source, again.provenance.source) == (1, 2)
    assert again.structured_content == first.structured_content
    assert again.provenance.retrieve_time.ToDatetime() < again.create_time.ToDatetime()
    assert (again.execution.attempts, len(audit.about(again.invocation_id))) == (0, 2)
    await mesh.invoke("kept_lines", b'{"size":3}')
    await mesh.invoke("kept_lines", b'{"size":2}', token=signer.mint("did:web:toolmesh.local:users:bob"))
    assert mesh.tools["kept_lines"].calls == 3
    together = await asyncio.gather(*(mesh.invoke("kept_lines", b'{"size":5}') for _ in range(20)))
    assert len({each.structured_content for each in together}) == 1
    assert mesh.tools["kept_lines"].calls == 4
    version = vpb.ToolVersion()
    version.CopyFrom(registry.versions["tools/core.kept_lines/versions/1.0.0"])
    version.state_reason = "looked at again"
    await registry.put(version)

    async def ran_again() -> bool:
        await mesh.invoke("kept_lines", b'{"size":2}')
        return bool(mesh.tools["kept_lines"].calls == 5)

    async with asyncio.timeout(10):
        while not await ran_again():
            continue
