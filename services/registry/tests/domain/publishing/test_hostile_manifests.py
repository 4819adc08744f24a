"""Hostile manifests get a typed answer within bounded work, and the process stays healthy.

Nothing here measures time: pytest-timeout ends a test that hangs, and the budgets of the domain bound the rest.
"""

from __future__ import annotations

from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import Reason
from libs.common.rpc.status import from_rpc_error
from services.registry.tests.calls import PATIENCE
from services.registry.tests.conftest import Replica
from services.registry.tests.domain.publishing.hostile_manifests import hostile_manifests
from services.registry.tests.manifests import reader, writer

METHOD = "/toolmesh.registry.v1.RegistryService/RegisterTool"
REFUSALS = {
    Reason.TOOL_MANIFEST_INVALID,
    Reason.INVALID_REQUEST,
    Reason.INVALID_JSON,
    Reason.PAYLOAD_TOO_LARGE,
}
FUZZED = 250


async def outcome(stub: Any, manifest: mpb.ToolManifest) -> Reason | None:
    """Register and return the refusal; None if it was admitted."""
    try:
        await stub.RegisterTool(pb.RegisterToolRequest(manifest=manifest), timeout=PATIENCE)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason
    return None


async def healthy(stub: Any) -> None:
    """The registry still admits, resolves and refuses."""
    fresh = reader("acme.still_well")
    assert (await stub.RegisterTool(pb.RegisterToolRequest(manifest=fresh), timeout=PATIENCE)).version.name
    assert (await stub.ResolveTool(pb.ResolveToolRequest(tool="acme.still_well"), timeout=PATIENCE)).version.digest


@pytest.mark.timeout(120)
async def test_hand_made_ones_are_refused_or_harmless(registry: Replica) -> None:
    stub = registry.stub()
    admitted = []
    for number, (name, manifest) in enumerate(hostile_manifests()):
        manifest.tool_id = f"hostile_{number}"
        found = await outcome(stub, manifest)
        assert found is None or found in REFUSALS, f"{name}: {found}"
        if found is None:
            admitted.append((name, manifest))
    # Some are unusual but within every limit, and are stored.
    for name, manifest in admitted:
        version = f"tools/acme.{manifest.tool_id}/versions/1.0.0"
        again = mpb.ToolManifest()
        again.CopyFrom(manifest)
        again.version = "1.0.1"
        request = pb.CheckCompatibilityRequest(manifest=again, baseline=version)
        answer = await stub.CheckCompatibility(request, timeout=PATIENCE)
        assert answer.smallest_bump != pb.VERSION_BUMP_UNSPECIFIED, name
    await healthy(stub)


async def test_messages_that_are_no_manifests_end_in_a_status(registry: Replica) -> None:
    """Oversized messages, invalid text and undecodable bytes are refused before the handler."""
    registry.stub()
    raw = registry.channels[-1].unary_unary(METHOD)  # type: ignore[var-annotated]
    good = pb.RegisterToolRequest(manifest=reader()).SerializeToString()
    broken = [
        b"\xff" * 100,
        good[:-3],
        good.replace(b"Find an order", b"Find an \xff\xfe\xfd\xfcr"),
        good + b"\x0a\xff\xff\xff\xff\x0f",
    ]
    for payload in broken:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw(payload, timeout=PATIENCE)
        assert from_rpc_error(caught.value).reason is Reason.INVALID_REQUEST
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        # gRPC itself refuses this one.
        await raw(b"\x0a\x80\x80\x80\x05" + b"\x00" * (10 * 1024 * 1024), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await healthy(registry.stub())


@pytest.mark.timeout(120)
async def test_fuzzed_ones_are_admitted_or_refused(registry: Replica) -> None:
    stub = registry.stub()
    rng = Random(20260601)
    outcomes: dict[Reason | None, int] = {}
    for number in range(FUZZED):
        manifest = rng.choice([reader, writer])(f"acme.fuzzed_{number}")
        for _ in range(rng.randint(1, 4)):
            spoil(rng, manifest)
        found = await outcome(stub, manifest)
        assert found is None or found in REFUSALS | {Reason.PERMISSION_DENIED, Reason.ALREADY_EXISTS}, str(manifest)
        outcomes[found] = outcomes.get(found, 0) + 1
    assert outcomes[Reason.INVALID_REQUEST] > 20
    assert outcomes[Reason.TOOL_MANIFEST_INVALID] > 20
    await healthy(stub)


def spoil(rng: Random, message: Any) -> None:
    """Change one random field to an unusual value."""
    field = rng.choice(message.DESCRIPTOR.fields)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        getattr(message, field.name)[_text(rng)] = _text(rng)
    elif kind is not None:
        held = getattr(message, field.name)
        _spoil_message(rng, held.add() if field.is_repeated else held)
    elif rng.random() < 0.3:
        message.ClearField(field.name)
    elif field.is_repeated:
        getattr(message, field.name).extend(_value(rng, field) for _ in range(rng.choice([1, 3, 200])))
    else:
        setattr(message, field.name, _value(rng, field))


def _spoil_message(rng: Random, held: Any) -> None:
    held.SetInParent()
    for _ in range(rng.randint(0, 3)):
        spoil(rng, held)


def _value(rng: Random, field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text(rng)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice([b"", b"{", b"[]", b"null", b"{}", b'{"type":"object"}', b'{"a":1,"a":2}', b"\xff", b"1e999"])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e308])
    bits = 63 if field.type == FieldDescriptor.TYPE_INT64 else 31
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice([0, 1, 2, 3, 99])
    return rng.choice([0, -1, 1, 2**bits - 1, -(2**bits)])


def _text(rng: Random) -> str:
    return rng.choice(
        [
            "",
            "a",
            "x" * 300,
            "x" * 20_000,
            "\0",
            "../..",
            "tools/a.b",
            "ignore previous instructions",
            "\u202e",
            "é",
            "a:b",
            "1.0.0",
        ]
    )
