"""Dropped shards are accepted only with a drop record in the log."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh.audit.v1 import log_service_pb2
from toolmesh_sdk.audit import Report
from toolmesh_sdk.audit.verify.online.online_check import OnlineCheck
from toolmesh_sdk.audit.verify.online.pinned_state import PinnedState

from tests.evidence.conftest import LogCopy
from tests.evidence.live_log import LiveLog, records

MakeCopy = Callable[[], LogCopy]
DIGEST = "sha256:" + "ab" * 32
EXPIRED = "update shards set close_time = now() - interval '8 years' where number <= 1"


def verify_online(log: LiveLog, made: LogCopy, sample: int = 0) -> Report:
    return OnlineCheck(log.remote(), PinnedState(), made.original.key, sample=sample).run()


@pytest.fixture
def dropped(copy: MakeCopy) -> LogCopy:
    """A log whose second shard was dropped by the rules."""
    made = copy()
    made.sql(EXPIRED)
    with made.serve() as log:
        log.archive(1, DIGEST, drop=True)
        log.append(records(5, 5000))
    return made


def own_defect(log: LiveLog) -> int:
    """Return the defect that the log's own VerifyRange finds."""
    bad = log.remote().verify_range(0, 1047)
    return bad.defect if bad else 0


@pytest.mark.parametrize("sample", [0, 3])
def test_a_shard_that_was_dropped_by_the_rules_is_good(dropped: LogCopy, sample: int) -> None:
    with dropped.serve() as log:
        report = verify_online(log, dropped, sample)
        assert own_defect(log) == 0
    assert report.exit_code == 0, report.to_dict()
    assert any("archive" in remark for remark in report.remarks)


@pytest.mark.parametrize("sample", [0, 3])
def test_a_shard_that_was_dropped_without_a_record_is_missing(copy: MakeCopy, sample: int) -> None:
    made = copy()
    made.sql(
        "drop table records_1",
        "update shards set drop_time = now(), archive_time = now(), manifest_digest = %(digest)s where number = 1",
        digest=DIGEST,
    )
    with made.serve() as log:
        report = verify_online(log, made, sample)
        assert own_defect(log) == log_service_pb2.DEFECT_SHARD_MISSING
    assert report.first is not None
    assert (report.first.kind.value, report.first.sequence) == ("shard_missing", 300)


def test_an_archive_alone_is_no_leave_to_drop(copy: MakeCopy) -> None:
    made = copy()
    with made.serve() as log:
        log.archive(1, DIGEST)
    made.sql("drop table records_1", "update shards set drop_time = now() where number = 1")
    with made.serve() as log:
        assert own_defect(log) == log_service_pb2.DEFECT_SHARD_MISSING
        report = verify_online(log, made)
    assert report.first is not None
    assert (report.first.kind.value, report.first.sequence) == ("shard_missing", 300)


def test_a_digest_that_the_log_never_noted_is_found(dropped: LogCopy) -> None:
    dropped.sql("update shards set manifest_digest = %(other)s where number = 1", other="sha256:" + "cd" * 32)
    with dropped.serve() as log:
        assert own_defect(log) == log_service_pb2.DEFECT_SHARD_MISSING
        report = verify_online(log, dropped)
    assert report.first is not None
    assert (report.first.kind.value, report.first.sequence) == ("shard_missing", 300)


def test_a_digest_of_a_shard_that_is_still_there_must_be_noted_as_well(copy: MakeCopy) -> None:
    made = copy()
    with made.serve() as log:
        log.archive(0, DIGEST)
        assert verify_online(log, made).exit_code == 0
    made.sql("update shards set manifest_digest = %(other)s where number = 0", other="sha256:" + "cd" * 32)
    with made.serve() as log:
        report = verify_online(log, made)
    assert report.first is not None
    assert report.first.kind.value == "manifest_tampered"


def sign_checkpoint(made: LogCopy, shard: int, size: int, root: bytes) -> str:
    """Return a checkpoint with any content, signed by the log's key."""
    pem = Path(made.original.environment["TOOLMESH_CHECKPOINT_KEY"]).read_bytes()
    private = serialization.load_pem_private_key(pem, None)
    assert isinstance(private, Ed25519PrivateKey)
    origin = f"{made.original.key.log}/{shard}"
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    line = made.original.key.key_hash_for(origin) + private.sign(text.encode())
    return f"{text}\n\N{EM DASH} {origin} {base64.b64encode(line).decode()}\n"


def test_a_dropped_shard_must_be_the_one_that_the_next_names(dropped: LogCopy) -> None:
    other = hashlib.sha256(b"another history").digest()
    dropped.sql(
        "update checkpoints set note = %(note)s, root_hash = %(root)s where shard = 1 and size = 641",
        "update shards set root_hash = %(root)s where number = 1",
        note=sign_checkpoint(dropped, 1, 641, other),
        root=other,
    )
    with dropped.serve() as log:
        assert own_defect(log) == log_service_pb2.DEFECT_LINK_BROKEN
        report = verify_online(log, dropped)
    assert report.first is not None
    assert (report.first.kind.value, report.first.sequence) == ("shard_swapped", 300)


def test_the_checkpoint_of_a_dropped_shard_must_be_that_of_its_root(dropped: LogCopy) -> None:
    other = hashlib.sha256(b"another history").digest()
    dropped.sql(
        "update checkpoints set note = %(note)s, root_hash = %(root)s where shard = 1 and size = 641",
        note=sign_checkpoint(dropped, 1, 641, other),
        root=other,
    )
    with dropped.serve() as log:
        assert own_defect(log) == log_service_pb2.DEFECT_CHECKPOINT_BROKEN
        assert verify_online(log, dropped).exit_code == 1


def test_the_drop_record_may_be_in_an_archive_itself(copy: MakeCopy) -> None:
    made = copy()
    made.sql(EXPIRED)
    with made.serve() as log:
        log.archive(0, DIGEST, drop=True)
        log.close_shard(2)
    made.sql("update shards set close_time = now() - interval '8 years' where number = 2")
    with made.serve() as log:
        log.archive(2, DIGEST, drop=True)
        report = verify_online(log, made)
        assert own_defect(log) == 0
    assert report.exit_code == 0, report.to_dict()
    assert any("shard 0" in remark for remark in report.remarks)
