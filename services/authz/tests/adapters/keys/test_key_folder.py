"""Key rotation while the key ring is in use."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.authz.adapters.keys.key_folder import PUBLISH_AHEAD, KeyFolder
from services.authz.adapters.keys.signing_keys import SigningKeysError
from services.authz.tests.conftest import FIRST, SECOND


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def ring(folder: Path, clock: ManualClock, log_file: Path) -> KeyFolder:
    descriptor = os.open(log_file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    return KeyFolder(folder, clock, Log("authz", descriptor=descriptor))


def warnings(log_file: Path) -> list[str]:
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    return [line["event"] for line in lines if line["level"] == "warning"]


async def published(ring: KeyFolder) -> int:
    return len(json.loads(await ring.jwks())["keys"])


async def test_a_new_key_is_published_within_a_second_and_signs_after_publish_ahead(
    ring: KeyFolder, folder: Path, clock: ManualClock, pems: tuple[bytes, ...]
) -> None:
    old = await ring.active()
    (folder / SECOND).write_bytes(pems[1])
    clock.advance(0.9)
    assert await published(ring) == 1
    clock.advance(0.1)
    assert await published(ring) == 2
    assert await ring.active() is old
    clock.advance(PUBLISH_AHEAD - 0.1)
    assert await ring.active() is old
    clock.advance(0.1)
    assert (await ring.active()).kid != old.kid


async def test_a_key_that_lay_there_long_before_the_process_began_signs_at_once(
    folder: Path, clock: ManualClock, quiet: Log, pems: tuple[bytes, ...]
) -> None:
    (folder / SECOND).write_bytes(pems[1])
    clock.advance(PUBLISH_AHEAD + 1)
    ring = KeyFolder(folder, clock, quiet)
    assert (await ring.active()).kid == json.loads(await ring.jwks())["keys"][-1]["kid"]


async def test_a_replica_that_starts_during_a_rotation_does_not_sign_with_the_new_key(
    folder: Path, clock: ManualClock, quiet: Log, pems: tuple[bytes, ...]
) -> None:
    # As a secret is mounted, or a folder copied: every file is as young as the replica.
    (folder / SECOND).write_bytes(pems[1])
    ring = KeyFolder(folder, clock, quiet)
    oldest, newest = (key["kid"] for key in json.loads(await ring.jwks())["keys"])
    assert (await ring.active()).kid == oldest
    clock.advance(PUBLISH_AHEAD)
    assert (await ring.active()).kid == newest


async def test_a_revoked_key_never_signs_again_and_stays_published(
    folder: Path, clock: ManualClock, quiet: Log, pems: tuple[bytes, ...]
) -> None:
    (folder / SECOND).write_bytes(pems[1])
    revoked: set[str] = set()
    ring = KeyFolder(folder, clock, quiet, revoked=lambda: revoked)
    first = await ring.active()
    revoked.add(first.kid)
    other = await ring.active()
    assert other.kid != first.kid
    assert await ring.published() == {first.kid, other.kid}
    revoked.add(other.kid)
    with pytest.raises(MeshError) as caught:
        await ring.active()
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


async def test_a_removed_file_is_no_longer_published(
    ring: KeyFolder, folder: Path, clock: ManualClock, pems: tuple[bytes, ...]
) -> None:
    (folder / SECOND).write_bytes(pems[1])
    (folder / FIRST).unlink()
    clock.advance(1)
    assert await published(ring) == 1
    assert (await ring.active()).kid in (await ring.jwks()).decode()


async def test_an_invalid_folder_changes_nothing_and_is_logged_once(
    ring: KeyFolder, folder: Path, clock: ManualClock, log_file: Path, pems: tuple[bytes, ...]
) -> None:
    old = await ring.active()
    (folder / SECOND).write_bytes(pems[1][:300])
    for _ in range(3):
        clock.advance(1)
        assert await ring.active() is old
    assert warnings(log_file) == ["signing keys not loaded"]
    (folder / SECOND).write_bytes(pems[1])
    clock.advance(1)
    assert await published(ring) == 2


@pytest.mark.parametrize("gone", ["files", "folder"])
async def test_an_emptied_folder_does_not_end_the_issuer(
    ring: KeyFolder, folder: Path, clock: ManualClock, log_file: Path, gone: str
) -> None:
    shutil.rmtree(folder) if gone == "folder" else (folder / FIRST).unlink()
    clock.advance(1)
    assert await published(ring) == 1
    assert warnings(log_file) == ["signing keys not loaded"]


def test_a_key_folder_with_an_invalid_key_is_refused_at_start(folder: Path, clock: ManualClock, quiet: Log) -> None:
    (folder / SECOND).write_text("not a key")
    with pytest.raises(SigningKeysError):
        KeyFolder(folder, clock, quiet)
