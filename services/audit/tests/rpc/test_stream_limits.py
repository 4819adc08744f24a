"""Long reads of one caller are bounded, and their slots are free again when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import log_service_pb2 as log_pb

from libs.common.errors import MeshError, Reason
from services.audit.tests.replicas import Replica, answer, reason_of, reply, take
from services.audit.tests.sample import a_record

PER_SUBJECT, PER_TENANT, PER_PROCESS = 3, 5, 7
NEXT = pb.WatchRecordsRequest(from_sequence=-1)
ALICE, BOB, CAROL = "did:web:alice", "did:web:bob", "did:web:carol"
Bearer = Callable[[str, str], Any]


@pytest.fixture
def audit_environment(audit_environment: dict[str, str]) -> dict[str, str]:
    limits = {"SUBJECT": PER_SUBJECT, "TENANT": PER_TENANT, "PROCESS": PER_PROCESS}
    return {**audit_environment, **{f"TOOLMESH_STREAMS_PER_{name}": str(limit) for name, limit in limits.items()}}


@pytest.fixture
def bearer(signer: Any) -> Bearer:
    def metadata(subject: str, tenant: str) -> Any:
        claims = {"tenant": tenant} if tenant else {}
        return (("authorization", f"Bearer {signer.mint(sub=subject, scope='audit:read', **claims)}"),)

    return metadata


async def opened(stub: Any, metadata: Any, count: int) -> list[Any]:
    """Return open watches."""
    watches = [stub.WatchRecords(NEXT, metadata=metadata) for _ in range(count)]
    for watch in watches:
        await watch.initial_metadata()
    return watches


async def refusal(stub: Any, metadata: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await answer(stub.WatchRecords(NEXT, metadata=metadata))
    return caught.value


async def until_admitted(stub: Any, metadata: Any) -> Any:
    """Return a watch as soon as there is a slot for it."""
    async with asyncio.timeout(60):
        while True:
            watch = stub.WatchRecords(NEXT, metadata=metadata)
            await watch.initial_metadata()
            if not watch.done():
                return watch
            await asyncio.sleep(0.01)


async def test_subject_tenant_and_process_have_a_limit_each(audit: Replica, bearer: Bearer) -> None:
    stub = audit.stub("edge")
    watches = await opened(stub, bearer(ALICE, "acme"), PER_SUBJECT)
    refused = await refusal(stub, bearer(ALICE, "acme"))
    assert (refused.reason, refused.metadata["limit_streams"]) == (Reason.RATE_LIMITED, str(PER_SUBJECT))
    watches += await opened(stub, bearer(BOB, "acme"), PER_TENANT - PER_SUBJECT)
    refused = await refusal(stub, bearer(CAROL, "acme"))
    assert (refused.reason, refused.metadata["limit_streams"]) == (Reason.RATE_LIMITED, str(PER_TENANT))
    watches += await opened(stub, bearer(ALICE, "globex"), PER_PROCESS - PER_TENANT)
    assert (await refusal(stub, bearer(CAROL, "initech"))).reason is Reason.OVERLOADED
    await audit.append(a_record())
    for watch in watches:
        watch.cancel()


async def test_exports_and_verifications_are_counted_with_watches(audit: Replica, bearer: Bearer) -> None:
    await audit.append(a_record())
    token = bearer(ALICE, "")
    watches = await opened(audit.stub("edge"), token, PER_SUBJECT)
    export = audit.stub("edge").ExportRecords(pb.ExportRecordsRequest(shard=0), metadata=token)
    assert await reason_of(answer(export)) is Reason.RATE_LIMITED
    verification = audit.log("edge").VerifyRange(log_pb.VerifyRangeRequest(), metadata=token)
    assert await reason_of(reply(verification)) is Reason.RATE_LIMITED
    for watch in watches:
        watch.cancel()


async def test_the_slots_of_canceled_watches_are_free_again(audit: Replica, bearer: Bearer) -> None:
    stub, token = audit.stub("edge"), bearer(ALICE, "")
    for _ in range(3):
        for watch in await opened(stub, token, PER_SUBJECT - 1):
            watch.cancel()
        (await until_admitted(stub, token)).cancel()


async def test_a_client_that_does_not_read_frees_its_slots_when_it_leaves(audit: Replica, bearer: Bearer) -> None:
    summary = b'"%s"' % (b"x" * 4000)
    for _ in range(4):
        await audit.append(*(a_record(arguments_summary=summary) for _ in range(300)))
    stub, token = audit.stub("edge"), bearer(ALICE, "")
    stalled = [stub.WatchRecords(pb.WatchRecordsRequest(), metadata=token) for _ in range(PER_SUBJECT)]
    for watch in stalled:
        await take(watch, 1)
    assert (await refusal(stub, token)).reason is Reason.RATE_LIMITED
    for watch in stalled:
        watch.cancel()
    watch = await until_admitted(stub, token)
    assert await watch.initial_metadata() is not grpc.aio.EOF
    watch.cancel()
