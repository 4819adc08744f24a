"""Two tenants share the stream of one executor to a real log: records of one that the log refuses cost the other
nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.audit.stream import AuditStream
from services.executor.domain.model import PayloadDigest, Record
from services.executor.tests.samples import a_record, a_request
from tests.harness.evidence.audit import AuditProcess, audit_channel

POISONS = [PayloadDigest("sha256:" + "0" * 64, b"{not json"), PayloadDigest("sha256:" + "0" * 64, b"1.0")]
GOOD = PayloadDigest("sha256:" + "1" * 64, b'{"value":100000000000000000000}')
ROUNDS = 20


@pytest.fixture
async def log(
    process_environment: Callable[[str], dict[str, str]], database: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[AuditProcess]:
    """A real audit process on a fresh database."""
    key = Ed25519PrivateKey.generate()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "checkpoint.pem").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    environment = {
        **process_environment("audit"),
        "TOOLMESH_DATABASE_URL": database("audit"),
        # Never asked: the executor and the operator come without a caller's token.
        "TOOLMESH_AUTHZ_ADDRESS": "127.0.0.1:9",
        "TOOLMESH_CHECKPOINT_KEY": str(tmp_path / "checkpoint.pem"),
    }
    process = AuditProcess(environment, tmp_path / "audit.log")
    process.start()
    await process.ready()
    yield process
    process.end()


def record_of(tenant: str, **changes: Any) -> Record:
    request = a_request()
    return a_record(request=replace(request, caller=replace(request.caller, tenant=tenant, token_id=tenant)), **changes)


async def outcome_of(stream: AuditStream, record: Record) -> None:
    await stream.wait_confirmed(stream.enqueue(record), within=30)


@pytest.mark.parametrize("poison", POISONS, ids=["not JSON", "not canonical"])
async def test_refused_records_of_one_tenant_cost_the_other_nothing(
    log: AuditProcess, pki: Any, poison: PayloadDigest
) -> None:
    async with audit_channel(pki, "executor", log.port) as channel, audit_channel(pki, "operator", log.port) as reading:
        stream = AuditStream(channel, RecordEncoder("e-0"), Log("executor", level="error"), active=lambda: 9)
        opened, opening = 0, stream._open

        def counting(**options: Any) -> Any:
            nonlocal opened
            opened += 1
            return opening(**options)

        stream._open = counting
        await stream.start()
        decisions = [record_of("mallory", arguments=poison) for _ in range(ROUNDS)]
        outcomes = [record_of("mallory", follows="d", result=poison) for _ in range(ROUNDS)]
        others = [record_of("acme", arguments=GOOD, result=GOOD) for _ in range(2 * ROUNDS)]
        refused, _, _ = await asyncio.gather(
            asyncio.gather(*(stream.append(each, within=30) for each in decisions), return_exceptions=True),
            asyncio.gather(*(outcome_of(stream, each) for each in outcomes)),
            asyncio.gather(*(stream.append(each, within=30) for each in others)),
        )
        await stream.stop()
        assert [type(each) is MeshError and each.reason for each in refused] == [Reason.AUDIT_RECORD_INVALID] * ROUNDS
        assert opened == 1
        request = pb.QueryRecordsRequest(page_size=1000)
        page = await rpc.AuditServiceStub(reading).QueryRecords(request)
    stored = {logged.record.record_id: logged for logged in page.records}
    assert set(stored) == {record.record_id for record in (*outcomes, *others)}
    for record in outcomes:
        form = orjson.loads(stored[record.record_id].canonical_json)
        assert form["reduced_reason"].split()[-1] in ("record.json", "record.canonical")
        assert form["result_digest"] == poison.digest
    assert not any(stored[record.record_id].record.reduced_reason for record in others)
