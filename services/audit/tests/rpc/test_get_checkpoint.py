"""The log's signed word, checked by hand."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh.audit.v1 import audit_service_pb2 as pb

from services.audit.tests.replicas import Replica, Start, reply
from services.audit.tests.sample import a_record, expected_root


async def checkpoint_of(replica: Replica) -> Any:
    return (await reply(replica.stub("operator").GetCheckpoint(pb.GetCheckpointRequest()))).checkpoint


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_a_checkpoint_can_be_verified_with_the_public_key_alone(
    audit: Replica, checkpoint_key: Ed25519PrivateKey, count: int
) -> None:
    if count:
        await audit.append(*(a_record() for _ in range(count)))
    checkpoint = await checkpoint_of(audit)
    text, _, signatures = checkpoint.note.partition("\n\n")
    origin, size, root = text.split("\n")
    first, second = signatures.removesuffix("\n").split("\n")
    dash, name, encoded = first.split(" ")
    signature, public = base64.b64decode(encoded), checkpoint_key.public_key()
    public.verify(signature[4:], (text + "\n").encode())
    assert (dash, name, origin) == ("—", origin, f"toolmesh.local/audit/{checkpoint.log_id}/0")
    expected_hash = hashlib.sha256(name.encode() + b"\n\x01" + public.public_bytes_raw()).digest()[:4]
    assert signature[:4] == expected_hash
    assert checkpoint.key_id == f"{name}+{expected_hash.hex()}"
    assert (int(size), checkpoint.tree_size) == (count, count)
    assert base64.b64decode(root) == checkpoint.root_hash == expected_root([row[2] for row in audit.stored()])
    assert second.split(" ")[1] == f"toolmesh.local/audit/{checkpoint.log_id}"


async def test_a_checkpoint_covers_what_another_replica_made_durable(start: Start) -> None:
    here, there = await start(), await start()
    await here.append(a_record())
    await there.append(a_record(), a_record())
    checkpoint = await checkpoint_of(here)
    assert checkpoint.tree_size == 3
    assert checkpoint.root_hash == expected_root([row[2] for row in here.stored()])
