"""Proofs through the service, verified independently."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest
from sqlalchemy import event
from toolmesh.audit.v1 import log_service_pb2 as pb

from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for
from services.audit.adapters.evidence.shards import PostgresShardStore
from services.audit.adapters.log.reader import PostgresReader
from services.audit.adapters.log.trees import PostgresTreeStore
from services.audit.domain.evidence.prove import Prover
from services.audit.tests.conftest import a_writer
from services.audit.tests.database import sql
from services.audit.tests.proofs import is_consistent, root_of_inclusion
from services.audit.tests.replicas import Replica, reason_of, reply
from services.audit.tests.sample import a_record, an_entry, expected_root


async def inclusion(audit: Replica, **request: Any) -> Any:
    return await reply(audit.log().GetInclusionProof(pb.GetInclusionProofRequest(**request)))


async def consistency(audit: Replica, first: int, second: int = 0, shard: int = 0) -> Any:
    request = pb.GetConsistencyProofRequest(shard=shard, first_size=first, second_size=second)
    return await reply(audit.log().GetConsistencyProof(request))


async def test_every_record_of_two_shards_can_be_proved_in_every_size_of_its_tree(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(7)))
    await reply(audit.log().CloseShard(pb.CloseShardRequest(shard=0)))
    await audit.append(*(a_record() for _ in range(4)))
    stored = audit.stored()
    for shard, first, end in ((0, 0, 7), (1, 7, 12)):
        payloads = [row[2] for row in stored[first:end]]
        for leaf in range(len(payloads)):
            for size in range(leaf + 1, len(payloads) + 1):
                proof = await inclusion(audit, sequence=first + leaf, tree_size=size)
                assert (proof.shard, proof.leaf_index, proof.tree_size) == (shard, leaf, size)
                assert proof.leaf_hash == hashlib.sha256(b"\x00" + payloads[leaf]).digest()
                assert proof.root_hash == expected_root(payloads[:size])
                assert root_of_inclusion(leaf, size, proof.leaf_hash, proof.hashes) == proof.root_hash


async def test_a_record_is_proved_by_its_id_in_the_shard_as_it_is(audit: Replica) -> None:
    record = a_record()
    await audit.append(a_record(), record, a_record())
    by_id, by_place = await inclusion(audit, record_id=record.record_id), await inclusion(audit, sequence=1)
    assert by_id == by_place
    assert by_id.tree_size == 3


async def test_every_two_sizes_of_a_shard_are_consistent(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(9)))
    payloads = [row[2] for row in audit.stored()]
    for first in range(10):
        for second in range(max(first, 1), 10):
            proof = await consistency(audit, first, second)
            assert (proof.first_root, proof.second_root) == (
                expected_root(payloads[:first]),
                expected_root(payloads[:second]),
            )
            assert is_consistent(first, second, proof.first_root, proof.second_root, proof.hashes)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.GetInclusionProofRequest(sequence=3), Reason.NOT_FOUND),
        (pb.GetInclusionProofRequest(sequence=2**63 - 1), Reason.NOT_FOUND),
        (pb.GetInclusionProofRequest(record_id="no-such-record"), Reason.NOT_FOUND),
        (pb.GetInclusionProofRequest(sequence=1, tree_size=1), Reason.FAILED_PRECONDITION),
        (pb.GetInclusionProofRequest(sequence=1, tree_size=4), Reason.FAILED_PRECONDITION),
        (pb.GetInclusionProofRequest(), Reason.INVALID_REQUEST),
    ],
)
async def test_invalid_inclusion_requests_are_refused(audit: Replica, request_: Any, reason: Reason) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    assert await reason_of(reply(audit.log().GetInclusionProof(request_))) is reason


async def test_sizes_that_a_shard_never_had_are_refused(audit: Replica) -> None:
    await audit.append(*(a_record() for _ in range(3)))
    assert await reason_of(consistency(audit, 1, 4)) is Reason.FAILED_PRECONDITION
    assert await reason_of(consistency(audit, 3, 2)) is Reason.FAILED_PRECONDITION
    assert await reason_of(consistency(audit, 0, 0, shard=5)) is Reason.NOT_FOUND
    assert await reason_of(consistency(audit, 0, 0, shard=2**40)) is Reason.INVALID_REQUEST


async def test_a_proof_in_a_large_shard_reads_a_few_hundred_hashes(log_url: str) -> None:
    """Two levels of stored subtrees, an incomplete right edge, and proofs at random sequences and sizes."""
    writer = a_writer(log_url)
    await writer.start()
    size = 65_536 + 3 * 256 + 77
    template = an_entry()
    entries = [template._replace(record_id=f"record-{place}", canonical=b'{"n":%d}' % place) for place in range(size)]
    for start in range(0, size, 8000):
        await writer.append(entries[start : start + 8000])
    await writer.stop()
    leaves = [hashlib.sha256(b"\x00" + entry.canonical).digest() for entry in entries]
    engine = engine_for(log_url, schema="audit")
    read: list[int] = []
    event.listen(engine.sync_engine, "after_cursor_execute", lambda *call: read.append(call[1].rowcount))
    prover = Prover(PostgresReader(engine), PostgresShardStore(engine), PostgresTreeStore(engine))
    choose = random.Random(6962)
    try:
        for sequence in (0, 255, 256, 65_535, 65_536, size - 1, *(choose.randrange(size) for _ in range(6))):
            tree_size = choose.randrange(sequence + 1, size + 1)
            read.clear()
            proof = await prover.prove_inclusion(sequence, tree_size)
            assert root_of_inclusion(sequence, tree_size, leaves[sequence], proof.hashes) == proof.root
            assert sum(read) < 1600
            other = choose.randrange(1, tree_size + 1)
            read.clear()
            continued = await prover.prove_consistency(0, other, tree_size)
            assert continued.second_root == proof.root
            assert is_consistent(other, tree_size, continued.first_root, proof.root, continued.hashes)
            assert sum(read) < 1600
    finally:
        await engine.dispose()
    assert sql(log_url, "select level, count(*) from subtrees group by level order by level") == [(8, 259), (16, 1)]


async def test_a_proof_of_which_hashes_are_missing_is_refused_rather_than_made_up(
    audit: Replica, superuser: Any
) -> None:
    await audit.append(*(a_record() for _ in range(300)))
    superuser(audit.url, "alter table subtrees disable trigger all", "delete from subtrees")
    with pytest.raises(MeshError) as caught:
        await inclusion(audit, sequence=299)
    assert caught.value.metadata["condition"] == "hashes_missing"
