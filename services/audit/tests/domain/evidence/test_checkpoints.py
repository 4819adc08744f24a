"""Checkpoints: issued in the background and on demand, anchored and co-signed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import log_service_pb2 as pb

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from libs.common.sql.engine import engine_for
from services.audit.adapters.evidence.anchor_folder import FolderAnchor
from services.audit.adapters.evidence.checkpoint_key import FileCheckpointKey
from services.audit.adapters.evidence.checkpoints import PostgresCheckpointStore
from services.audit.adapters.evidence.shards import PostgresShardStore
from services.audit.adapters.log.reader import PostgresReader
from services.audit.adapters.log.trees import PostgresTreeStore
from services.audit.domain.evidence.checkpoints import CheckpointSigner
from services.audit.domain.evidence.cosignature import witness_keys
from services.audit.domain.evidence.issue_checkpoints import CheckpointInterval, CheckpointIssuer
from services.audit.domain.evidence.model import ShardLimits
from services.audit.domain.evidence.ports import AnchorError
from services.audit.domain.log.tail import Tail
from services.audit.domain.merkle.note import Origin
from services.audit.domain.model import SignedCheckpoint
from services.audit.tests.conftest import a_writer
from services.audit.tests.database import sql
from services.audit.tests.proofs import is_consistent
from services.audit.tests.replicas import Replica, Start, reason_of, reply
from services.audit.tests.sample import a_record, an_entry

NEVER = CheckpointInterval(10**9, 3600)


class RecordingObserver:
    """Records what the issuer reports."""

    def __init__(self) -> None:
        self.checkpoints: list[SignedCheckpoint] = []
        self.failures: list[str] = []

    def report_issued(self, checkpoint: SignedCheckpoint) -> None:
        self.checkpoints.append(checkpoint)

    def report_failure(self, what: str, error: Exception) -> None:
        self.failures.append(what)


class Issuing:
    """A checkpoint issuer on a database."""

    def __init__(
        self, url: str, key: Path, anchor: Any = None, interval: CheckpointInterval = NEVER, **options: Any
    ) -> None:
        self.engine = engine_for(url, schema="audit")
        self.shards, self.trees = PostgresShardStore(self.engine), PostgresTreeStore(self.engine)
        self.store, self.tail, self.observer = PostgresCheckpointStore(self.engine), Tail(), RecordingObserver()
        reader, origin = PostgresReader(self.engine), Origin("toolmesh.local")
        signing = FileCheckpointKey(key)
        self.checkpoints = CheckpointSigner(reader, self.shards, self.trees, self.store, signing, SystemClock(), origin)
        self.issuer = CheckpointIssuer(
            self.checkpoints, self.shards, self.tail, self.observer, interval, anchor, **options
        )

    def sizes(self) -> list[tuple[int, int]]:
        return [(each.shard, each.size) for each in self.observer.checkpoints]


@pytest.fixture
async def issuing(log_url: str, checkpoint_key_file: Path) -> AsyncIterator[Callable[..., Issuing]]:
    opened: list[Issuing] = []

    def opening(**options: Any) -> Issuing:
        opened.append(Issuing(log_url, checkpoint_key_file, **options))
        return opened[-1]

    yield opening
    for each in opened:
        await each.issuer.stop()
        await each.engine.dispose()


async def append_entries(url: str, *counts: int, records: int = 10**9) -> None:
    writer = a_writer(url, ShardLimits(records, 10**9))
    await writer.start()
    for count in counts:
        await writer.append([an_entry() for _ in range(count)])
    await writer.stop()


async def checkpoints_of(audit: Replica, shard: int = 0) -> list[Any]:
    request = pb.ListCheckpointsRequest(shard=shard, ascending=True)
    return list((await reply(audit.log().ListCheckpoints(request))).checkpoints)


# ---- issuing


async def test_the_issuer_signs_each_size_once(log_url: str, issuing: Callable[..., Issuing]) -> None:
    here = issuing()
    await here.issuer.run_once()
    await append_entries(log_url, 3)
    await here.issuer.run_once()
    await here.issuer.run_once()
    await append_entries(log_url, 4)
    await here.issuer.run_once()
    assert here.sizes() == [(0, 0), (0, 3), (0, 7)]
    assert sql(log_url, "select size from checkpoints order by size") == [(0,), (3,), (7,)]
    assert here.observer.failures == []


async def test_every_closed_shard_gets_its_last_checkpoint_and_is_sealed(
    log_url: str, issuing: Callable[..., Issuing]
) -> None:
    here = issuing()
    await here.issuer.run_once()
    await append_entries(log_url, 2, 2, 2, 2, records=2)
    await here.issuer.run_once()
    assert here.sizes() == [(0, 0), (0, 2), (1, 3), (2, 3), (3, 3)]
    sealed = sql(
        log_url, "select conrelid::regclass::text from pg_constraint where right(conname, 4) = '_end' order by 1"
    )
    assert sealed == [("records_0",), ("records_1",), ("records_2",)]


async def test_growth_by_count_is_signed_without_waiting_for_the_time(
    log_url: str, issuing: Callable[..., Issuing], audit_waiter: Callable[..., Any]
) -> None:
    here = issuing(interval=CheckpointInterval(records=5, seconds=3600))
    await here.issuer.start()
    await audit_waiter(lambda: here.sizes() == [(0, 0)])
    await append_entries(log_url, 5)
    here.tail.advance(5)
    await audit_waiter(lambda: here.sizes() == [(0, 0), (0, 5)])


async def test_growth_in_time_is_signed_without_waiting_for_the_count(
    log_url: str, issuing: Callable[..., Issuing], audit_waiter: Callable[..., Any]
) -> None:
    here = issuing(interval=CheckpointInterval(records=10**9, seconds=0.05))
    await here.issuer.start()
    await audit_waiter(lambda: here.sizes() == [(0, 0)])
    await append_entries(log_url, 2)
    await audit_waiter(lambda: here.sizes() == [(0, 0), (0, 2)])


async def test_replicas_that_sign_the_same_size_store_one(log_url: str, issuing: Callable[..., Issuing]) -> None:
    here, there = issuing(), issuing()
    await append_entries(log_url, 3)
    await here.issuer.run_once()
    await there.issuer.run_once()
    assert here.observer.checkpoints == there.observer.checkpoints
    assert sql(log_url, "select count(*) from checkpoints") == [(1,)]


slowly = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@slowly
@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(100, 900))
async def test_every_checkpoint_of_a_shard_is_consistent_with_the_next(
    database: Callable[[str], str], checkpoint_key_file: Path, counts: list[int], records: int
) -> None:
    url = database("audit")
    here = Issuing(url, checkpoint_key_file)
    for count in counts:
        await append_entries(url, count, records=records)
        await here.issuer.run_once()
    stored = sql(url, "select shard, size, root_hash from checkpoints order by shard, size")
    leaves = sql(url, "select shard, leaf_hash from records order by sequence")
    for (shard, first, first_root), (other, second, second_root) in itertools.pairwise(stored):
        if shard != other:
            continue
        hashes = [bytes(leaf) for number, leaf in leaves if number == shard]
        assert is_consistent(first, second, bytes(first_root), bytes(second_root), proof(first, hashes[:second]))
    await here.engine.dispose()
    assert here.observer.failures == []


async def test_the_key_of_the_log_opens_the_checkpoints_of_every_shard(
    issuing: Callable[..., Issuing], log_url: str
) -> None:
    here = issuing()
    await append_entries(log_url, 3, 3, 3, records=3)
    await here.issuer.run_once()
    key = await here.checkpoints.verifier_key()
    notes = sql(log_url, "select shard, note from checkpoints")
    assert len({shard for shard, _ in notes}) >= 3
    assert all(opens(key, note) for _, note in notes)


def opens(verifier_key: str, note: str) -> bool:
    """Open a note as C2SP signed-note asks: by a line whose name and key hash are those of the key."""
    name, key_hash, encoded = verifier_key.split("+", 2)
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(encoded)[1:])
    text, _, lines = note.rpartition("\n\n")
    for line in lines.splitlines():
        _, signer, value = line.split(" ")
        signature = base64.b64decode(value)
        if signer == name and signature[:4].hex() == key_hash:
            public.verify(signature[4:], (text + "\n").encode())
            return True
    return False


def proof(first: int, hashes: list[bytes]) -> list[bytes]:
    """Return the consistency proof by the recursive definition of RFC 6962, section 2.1.2."""

    def tree(part: list[bytes]) -> bytes:
        if len(part) == 1:
            return part[0]
        split = 1 << ((len(part) - 1).bit_length() - 1)
        return hashlib.sha256(b"\x01" + tree(part[:split]) + tree(part[split:])).digest()

    def steps(size: int, part: list[bytes], known: bool) -> list[bytes]:
        if size == len(part):
            return [] if known else [tree(part)]
        split = 1 << ((len(part) - 1).bit_length() - 1)
        if size <= split:
            return [*steps(size, part[:split], known), tree(part[split:])]
        return [*steps(size - split, part[split:], False), tree(part[:split])]

    return steps(first, hashes, True) if 0 < first < len(hashes) else []


async def test_nothing_is_signed_once_history_was_changed(
    log_url: str, issuing: Callable[..., Issuing], superuser: Callable[..., Any]
) -> None:
    here = issuing()
    await append_entries(log_url, 5)
    await here.issuer.run_once()
    forged = "update records set canonical = null, leaf_hash = sha256('') where sequence = 2"
    superuser(log_url, "alter table records_0 disable trigger all", forged)
    await append_entries(log_url, 2)
    await here.issuer.run_once()
    assert (here.sizes(), here.observer.failures) == ([(0, 5)], ["sign"])
    with pytest.raises(MeshError) as caught:
        await here.checkpoints.current()
    assert caught.value.metadata == {"condition": "history_changed", "shard": "0", "tree_size": "5"}


async def test_a_failed_signature_is_retried_after_a_pause(
    log_url: str, issuing: Callable[..., Issuing], superuser: Callable[..., Any], audit_waiter: Callable[..., Any]
) -> None:
    """The log has grown by more than a checkpoint interval, which would otherwise trigger the next attempt at once."""
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await asyncio.Event().wait()

    await append_entries(log_url, 5)
    changed = (
        "alter table records_0 disable trigger user; update records_0 set leaf_hash = sha256('x') where sequence = 1"
    )
    superuser(log_url, changed)
    here = issuing(interval=CheckpointInterval(2, 3600), pause=rest)
    here.tail.advance(5)
    await here.issuer.start()
    await audit_waiter(lambda: rests)
    assert (rests, here.observer.failures) == ([60.0], ["sign"])


async def test_a_head_that_does_not_fit_the_records_is_not_signed(
    log_url: str, issuing: Callable[..., Issuing], superuser: Callable[..., Any]
) -> None:
    here = issuing()
    await append_entries(log_url, 2)
    superuser(log_url, "update tree_head set hashes = array[sha256('')]")
    await here.issuer.run_once()
    assert (here.sizes(), here.observer.failures) == ([], ["sign"])


# ---- on demand, and listed


async def test_a_checkpoint_asked_for_twice_is_the_same(audit: Replica) -> None:
    await audit.append(a_record())
    stub = audit.stub("operator")
    first = await reply(stub.GetCheckpoint(audit_pb.GetCheckpointRequest()))
    assert await reply(stub.GetCheckpoint(audit_pb.GetCheckpointRequest())) == first


async def test_a_checkpoint_of_a_later_shard_counts_its_own_records(audit: Replica) -> None:
    await audit.append(a_record(), a_record())
    await reply(audit.log().CloseShard(pb.CloseShardRequest(shard=0)))
    await audit.append(a_record())
    found = (await reply(audit.stub("operator").GetCheckpoint(audit_pb.GetCheckpointRequest()))).checkpoint
    assert (found.shard, found.first_sequence, found.tree_size) == (1, 2, 2)
    assert found.note.splitlines()[:2] == [f"toolmesh.local/audit/{found.log_id}/1", "2"]


@pytest.mark.parametrize("ascending", [True, False])
async def test_checkpoints_are_listed_in_pages_that_new_ones_do_not_shift(audit: Replica, ascending: bool) -> None:
    for _ in range(5):
        await audit.append(a_record())
        await reply(audit.stub("operator").GetCheckpoint(audit_pb.GetCheckpointRequest()))
    seen, token = [], ""
    for _ in range(10):
        request = pb.ListCheckpointsRequest(page_size=2, page_token=token, ascending=ascending)
        page = await reply(audit.log().ListCheckpoints(request))
        seen += [each.tree_size for each in page.checkpoints]
        token = page.next_page_token
        if not token:
            break
    sizes = [size for (size,) in sql(audit.url, "select size from checkpoints order by size")]
    assert seen == (sizes if ascending else sizes[::-1])


# ---- anchoring


async def test_checkpoints_are_anchored_in_a_folder(
    log_url: str, issuing: Callable[..., Issuing], tmp_path: Path
) -> None:
    here = issuing(anchor=FolderAnchor(tmp_path / "anchors"))
    await append_entries(log_url, 2)
    await here.issuer.run_once()
    await append_entries(log_url, 2, records=2)
    await here.issuer.run_once()
    found = anchored_files(tmp_path / "anchors")
    log_id = here.observer.checkpoints[0].log_id
    assert found == {f"{log_id}/{c.shard}/{c.size:019d}.note": c.note for c in here.observer.checkpoints}


def anchored_files(folder: Path) -> dict[str, str]:
    """Return every file of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


async def test_a_failed_anchor_is_retried(log_url: str, issuing: Callable[..., Issuing], tmp_path: Path) -> None:
    folder = tmp_path / "anchors"
    folder.write_text("in the way")
    here = issuing(anchor=FolderAnchor(folder))
    for count in (2, 3):
        await append_entries(log_url, count)
        await here.issuer.run_once()
    assert here.observer.failures == ["anchor", "anchor"]
    folder.unlink()
    folder.mkdir()
    await here.issuer.run_once()
    assert len(anchored_files(folder)) == 2


async def test_an_anchored_checkpoint_is_never_replaced(
    tmp_path: Path, log_url: str, issuing: Callable[..., Issuing]
) -> None:
    here = issuing(anchor=FolderAnchor(tmp_path))
    await append_entries(log_url, 2)
    await here.issuer.run_once()
    [signed] = here.observer.checkpoints
    await FolderAnchor(tmp_path).put(signed)
    fork = SignedCheckpoint(**{**_fields(signed), "note": signed.note.replace("\n2\n", "\n2\nA")})
    with pytest.raises(AnchorError):
        await FolderAnchor(tmp_path).put(fork)
    assert list(anchored_files(tmp_path / signed.log_id).values()) == [signed.note]


def _fields(checkpoint: SignedCheckpoint) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in SignedCheckpoint.__dataclass_fields__}


# ---- co-signatures


class Witness:
    """A witness as in C2SP tlog-cosignature."""

    def __init__(self, name: str) -> None:
        self.name, self.key = name, Ed25519PrivateKey.generate()
        public = self.key.public_key().public_bytes_raw()
        self.hash = hashlib.sha256(name.encode() + b"\n\x04" + public).digest()[:4]
        encoded = base64.b64encode(b"\x04" + public).decode()
        self.verifier = f"{name}+{self.hash.hex()}+{encoded}"

    def line(self, note: str, moment: int | None = None) -> str:
        moment = int(time.time()) if moment is None else moment
        text = note.split("\n\n")[0]
        signature = self.key.sign(f"cosignature/v1\ntime {moment}\n{text}\n".encode())
        return f"— {self.name} {base64.b64encode(self.hash + moment.to_bytes(8, 'big') + signature).decode()}"


@pytest.fixture
def witnesses(audit_environment: dict[str, str], tmp_path: Path) -> list[Witness]:
    made = [Witness("witness.example/one"), Witness("witness.example/two")]
    (tmp_path / "witnesses").write_text("# two of them\n\n" + "\n".join(each.verifier for each in made) + "\n")
    audit_environment["TOOLMESH_WITNESS_KEYS"] = str(tmp_path / "witnesses")
    return made


async def cosign(audit: Replica, line: str, size: int = 2, shard: int = 0) -> Any:
    request = pb.AddCosignatureRequest(shard=shard, tree_size=size, line=line)
    return (await reply(audit.log().AddCosignature(request))).checkpoint


async def test_lines_of_known_witnesses_are_added_once(witnesses: list[Witness], start: Start) -> None:
    audit = await start()
    await audit.append(a_record(), a_record())
    note = (await reply(audit.stub("operator").GetCheckpoint(audit_pb.GetCheckpointRequest()))).checkpoint.note
    one, two = (witness.line(note) for witness in witnesses)
    assert list((await cosign(audit, one)).witness_signatures) == [one]
    assert list((await cosign(audit, two + "\n")).witness_signatures) == [one, two]
    assert list((await cosign(audit, witnesses[0].line(note, 1))).witness_signatures) == [one, two]
    [found] = [each for each in await checkpoints_of(audit) if each.tree_size == 2]
    assert list(found.witness_signatures) == [one, two]
    again = await reply(audit.stub("operator").GetCheckpoint(audit_pb.GetCheckpointRequest()))
    assert list(again.checkpoint.witness_signatures) == [one, two]


async def test_lines_that_no_known_witness_signed_are_refused(witnesses: list[Witness], start: Start) -> None:
    audit = await start()
    await audit.append(a_record(), a_record())
    note = (await reply(audit.stub("operator").GetCheckpoint(audit_pb.GetCheckpointRequest()))).checkpoint.note
    good = witnesses[0].line(note)
    other = note.replace("\n2\n", "\n3\n")
    impostor = Witness(witnesses[0].name)
    own = note.splitlines()[-1]
    shortened = f"{good[: good.rindex(' ')]} {base64.b64encode(b'short').decode()}"
    for line in (
        witnesses[0].line(other),
        impostor.line(note),
        Witness("witness.example/unknown").line(note),
        good.replace("—", "-"),
        f"{good}\n{good}",
        shortened,
        own,
        "nonsense",
    ):
        assert await reason_of(cosign(audit, line)) is Reason.INVALID_REQUEST
    assert await reason_of(cosign(audit, good, size=7)) is Reason.NOT_FOUND
    assert sql(audit.url, "select count(*) from cosignatures") == [(0,)]


@pytest.mark.parametrize(
    "spoiled", ["name only", "a+00000000+AAAA", "{name}+00000000+{key}", "{name}+{hash}+{ed25519}"]
)
def test_a_key_that_is_none_keeps_the_process_from_starting(spoiled: str) -> None:
    name, key_hash, key = Witness("witness.example").verifier.split("+", 2)
    public = random.Random(1).randbytes(32)
    plain = base64.b64encode(b"\x01" + public).decode()
    with pytest.raises(ValueError):
        witness_keys([spoiled.format(name=name, hash=key_hash, key=key, ed25519=plain)])
