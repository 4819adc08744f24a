"""100,000 records from eight writers while audit is killed at thirty random moments: nothing acknowledged is lost,
nothing is
there twice, and history only ever grew. What the relay told of meanwhile is all there as well, in order."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc.aio
import orjson
import psycopg
import pytest
import redis
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc
from toolmesh.audit.v1 import log_service_pb2 as log_pb
from toolmesh.audit.v1 import log_service_pb2_grpc as log_rpc

from libs.common.ids import new_id
from tests.harness.evidence import rfc6962
from tests.harness.evidence.audit import AuditProcess, Batch, Writer, audit_channel

RECORDS = int(os.environ.get("FAULT_RECORDS", "100000"))
KILLS = int(os.environ.get("FAULT_KILLS", "30"))
WRITERS = ("executor", "registry", "approval", "authz", "gateway", "executor", "executor", "gateway")
BATCH_RECORDS = 64
PROVEN = 300

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]


@pytest.fixture
def chance() -> random.Random:
    """Chance that can be had again: the seed is printed, and taken from FAULT_SEED."""
    seed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(2**32))
    print(f"FAULT_SEED={seed}")  # noqa: T201
    return random.Random(seed)


@pytest.fixture
def key() -> Ed25519PrivateKey:
    """The key that speaks for the log."""
    return Ed25519PrivateKey.generate()


@pytest.fixture
def environment(
    process_environment: Callable[[str], dict[str, str]],
    database: Callable[[str], str],
    valkey_url: str,
    key: Ed25519PrivateKey,
    tmp_path: Path,
) -> dict[str, str]:
    """The environment of audit on a fresh database, with a relay whose stream keeps everything."""
    with redis.Redis.from_url(valkey_url) as client:
        # Databases of tests are copies of one, and so are their logs: what an earlier test left would be
        # another history.
        client.flushdb()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "checkpoint.pem").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return {
        **process_environment("audit"),
        "TOOLMESH_DATABASE_URL": database("audit"),
        # Never asked: writers and the operator come without a caller's token.
        "TOOLMESH_AUTHZ_ADDRESS": "127.0.0.1:9",
        "TOOLMESH_CHECKPOINT_KEY": str(tmp_path / "checkpoint.pem"),
        "TOOLMESH_RELAY": "redis",
        "TOOLMESH_REDIS_URL": valkey_url,
        "TOOLMESH_RELAY_STREAM_LENGTH": str(10 * RECORDS),
    }


@pytest.fixture
async def replicas(
    environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[list[AuditProcess]]:
    """Running replicas on one database."""
    started = [AuditProcess(environment, tmp_path / f"audit-{number}.log") for number in range(request.param)]
    for replica in started:
        replica.start()
    for replica in started:
        await replica.ready()
    yield started
    for replica in started:
        replica.end()


class Witness:
    """Asks one replica for checkpoints all the time, and keeps them: of several, one that is dead must not keep the
    others from being asked."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = rpc.AuditServiceStub(channel)
        self.seen: list[Any] = []

    async def watch(self) -> None:
        """Ask until cancelled."""
        while True:
            with suppress(grpc.aio.AioRpcError):
                answer = await self._stub.GetCheckpoint(pb.GetCheckpointRequest(), timeout=2)
                self.seen.append(answer.checkpoint)
            await asyncio.sleep(0.05)


def batches_of(number: int, count: int, chance: random.Random) -> list[Batch]:
    """Make a writer's records, in batches of all sizes."""
    made: list[Batch] = []
    place = 0
    while place < count:
        size = min(chance.randint(1, BATCH_RECORDS), count - place)
        made.append(Batch([a_record(number, n) for n in range(place, place + size)]))
        place += size
    return made


def a_record(writer: int, number: int) -> record_pb.AuditRecord:
    now = Timestamp()
    now.GetCurrentTime()
    return record_pb.AuditRecord(
        record_id=new_id(),
        event_class=record_pb.EVENT_CLASS_INVOCATION_SUCCEEDED,
        event_time=now,
        trace_id=f"{writer:032x}",
        invocation_id=f"{writer}-{number // 3}",
        tool_version="tools/core.echo/versions/1.0.0",
        arguments_summary=orjson.dumps({"number": number, "text": "x" * (number % 90)}),
        status=record_pb.RECORD_STATUS_SUCCESS,
        native_call_id=f"{writer}/{number}",
    )


async def kill_at_random(replicas: Sequence[AuditProcess], writers: Sequence[Writer], chance: random.Random) -> int:
    """Kill some replica whenever so much more is acknowledged, with commits under way, and start it again. The others
    go on
    meanwhile, so the next one is killed when its moment comes; if it is the same one, the writers wait with us until
    it is
    back. Return how many kills found records that were not acknowledged yet."""
    marks = sorted(chance.randrange(RECORDS * 97 // 100) for _ in range(KILLS))
    back: dict[AuditProcess, asyncio.Task[None]] = {}
    midst = 0
    for mark in marks:
        while sum(writer.acknowledged for writer in writers) < mark:  # noqa: ASYNC110  (eight streams have no common event)
            await asyncio.sleep(0.001)
        replica = chance.choice(replicas)
        if replica in back and not back[replica].done():
            async with AsyncExitStack() as holding:
                for writer in writers:
                    await holding.enter_async_context(writer.held)
                await back[replica]
        await asyncio.sleep(chance.random() / 20)
        midst += sum(writer.acknowledged for writer in writers) < RECORDS
        replica.kill()
        replica.start()
        back[replica] = asyncio.ensure_future(replica.ready())
    await asyncio.gather(*back.values())
    return midst


@pytest.mark.parametrize("replicas", [1, 2], indirect=True, ids=["one replica", "two replicas"])
async def test_nothing_acknowledged_is_lost_when_audit_is_killed(
    replicas: list[AuditProcess],
    environment: dict[str, str],
    valkey_url: str,
    key: Ed25519PrivateKey,
    pki: Any,
    chance: random.Random,
) -> None:
    channels = {name: [audit_channel(pki, name, r.port) for r in replicas] for name in {*WRITERS, "operator"}}
    shares = [RECORDS // len(WRITERS)] * len(WRITERS)
    writers = [
        Writer(
            name,
            [*channels[name][n % len(replicas) :], *channels[name][: n % len(replicas)]],
            batches_of(n, share, chance),
        )
        for n, (name, share) in enumerate(zip(WRITERS, shares, strict=True))
    ]
    witnesses = [Witness(channel) for channel in channels["operator"]]
    begun = time.monotonic()
    watching = asyncio.gather(*(witness.watch() for witness in witnesses))
    killing = asyncio.ensure_future(kill_at_random(replicas, writers, chance))
    await asyncio.gather(*(writer.write_all() for writer in writers))
    kills = await killing
    took = time.monotonic() - begun
    watching.cancel()
    assert kills > KILLS // 2

    rows = stored(environment["TOOLMESH_DATABASE_URL"])
    check_acknowledged(writers, rows)
    tree = list(rfc6962.roots(rfc6962.leaf(canonical) for _, _, canonical in rows))
    seen = check_history(witnesses, tree)
    for checkpoint in seen:
        check_signed(checkpoint, key.public_key())
    log = log_rpc.LogServiceStub(channels["operator"][0])
    await check_consistency_proofs(log, seen)
    await check_inclusion_proofs(log, rows, chance)
    await check_relayed(valkey_url, seen[0].log_id, rows)
    for channel in [channel for several in channels.values() for channel in several]:
        await channel.close()
    print(  # noqa: T201
        f"{len(rows)} records, {kills} kills in the midst, {len(replicas)} replicas, {took:.1f} s, "
        f"{sum(w.streams for w in writers)} streams, {len(seen)} checkpoints"
    )


def stored(url: str) -> list[tuple[int, str, bytes]]:
    with psycopg.connect(url, options="-c search_path=audit") as connection:
        return connection.execute("select sequence, record_id, canonical from records order by sequence").fetchall()


def check_acknowledged(writers: Sequence[Writer], rows: Sequence[tuple[int, str, bytes]]) -> None:
    """Every record of every writer is there once, in its writer's order, as it was sent, where the acknowledgement
    said."""
    places = {record_id: sequence for sequence, record_id, _ in rows}
    assert [row[0] for row in rows] == list(range(RECORDS))
    assert len(places) == RECORDS
    for number, writer in enumerate(writers):
        sent = [record for batch in writer.batches for record in batch.records]
        found = [places[record.record_id] for record in sent]
        assert found == sorted(found)
        assert all(batch.last_sequence == places[batch.records[-1].record_id] for batch in writer.batches)
        for count, record in enumerate(sent):
            form = orjson.loads(rows[places[record.record_id]][2])
            assert (form["record_id"], form["writer"]) == (record.record_id, writer.name)
            assert form["native_call_id"] == f"{number}/{count}"


def check_history(witnesses: Sequence[Witness], tree: Sequence[bytes]) -> list[Any]:
    """Every checkpoint that was ever given is a beginning of the log as it is now. Returns them by their size."""
    checkpoints = [checkpoint for witness in witnesses for checkpoint in witness.seen]
    assert len({checkpoint.tree_size for checkpoint in checkpoints}) > KILLS // 4
    for witness in witnesses:
        sizes = [checkpoint.tree_size for checkpoint in witness.seen]
        assert sizes == sorted(sizes)
    assert [c.tree_size for c in checkpoints if tree[c.tree_size] != c.root_hash] == []
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.tree_size)


def check_signed(checkpoint: Any, key: Ed25519PublicKey) -> None:
    """The note says what the checkpoint says, under the log's key."""
    text, _, signatures = checkpoint.note.partition("\n\n")
    key.verify(base64.b64decode(signatures.split()[2])[4:], f"{text}\n".encode())
    _, size, root = text.splitlines()[:3]
    assert (int(size), base64.b64decode(root)) == (checkpoint.tree_size, checkpoint.root_hash)


async def check_consistency_proofs(log: Any, checkpoints: Sequence[Any]) -> None:
    """The log can prove from each checkpoint to the next that it only grew."""
    for earlier, later in pairwise(checkpoints):
        request = log_pb.GetConsistencyProofRequest(shard=0, first_size=earlier.tree_size, second_size=later.tree_size)
        if later.tree_size == 0:
            continue
        proof = await log.GetConsistencyProof(request)
        assert rfc6962.consistent(
            earlier.tree_size, later.tree_size, proof.hashes, earlier.root_hash, later.root_hash
        ), (earlier.tree_size, later.tree_size)


async def check_inclusion_proofs(log: Any, rows: Sequence[tuple[int, str, bytes]], chance: random.Random) -> None:
    """The log can prove of some records that they are in it; of all, the recomputed tree has shown it."""
    for sequence, record_id, canonical in chance.sample(list(rows), min(PROVEN, len(rows))):
        proof = await log.GetInclusionProof(log_pb.GetInclusionProofRequest(record_id=record_id))
        assert (proof.sequence, proof.tree_size) == (sequence, len(rows))
        hashed = rfc6962.leaf(canonical)
        assert rfc6962.included(hashed, sequence, proof.tree_size, proof.hashes, proof.root_hash)


async def check_relayed(valkey_url: str, log_id: str, rows: Sequence[tuple[int, str, bytes]]) -> None:
    """The stream holds every record once, in log order, whichever process told of it."""
    client = redis.Redis.from_url(valkey_url)
    stream = f"toolmesh:audit:{log_id}"
    async with asyncio.timeout(60):
        while client.xlen(stream) < len(rows):  # noqa: ASYNC110  (another process has no event to set)
            await asyncio.sleep(0.1)
    told = [orjson.loads(fields[b"event"]) for _, fields in client.xrange(stream)]  # type: ignore[index, union-attr]
    assert [int(event["sequence"]) for event in told] == list(range(len(rows)))
    assert [event["id"] for event in told] == [record_id for _, record_id, _ in rows]
    client.close()
