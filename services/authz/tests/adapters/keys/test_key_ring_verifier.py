"""The issuer's verifier uses the current keys of its key ring."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.authz.adapters.keys.key_folder import KeyFolder
from services.authz.adapters.keys.key_ring_verifier import KeyRingVerifier
from services.authz.tests.conftest import ALICE, FIRST, SECOND


@pytest.fixture
def ring(folder: Path, clock: ManualClock, quiet: Log) -> KeyFolder:
    return KeyFolder(folder, clock, quiet)


async def token_of(ring: KeyFolder, clock: ManualClock) -> str:
    now = int(clock.now().timestamp())
    claims = {"iss": "https://i", "aud": "a", "sub": ALICE, "jti": new_id(), "iat": now, "exp": now + 600}
    return await (await ring.active()).sign(claims)


async def test_a_new_key_is_accepted_at_once_and_a_removed_one_refused_though_its_token_was_remembered(
    ring: KeyFolder, folder: Path, clock: ManualClock, pems: tuple[bytes, ...]
) -> None:
    verifier = KeyRingVerifier(ring, issuer="https://i", audience="a")
    old = await token_of(ring, clock)
    assert (await verifier.verify(old)).subject == ALICE
    (folder / SECOND).write_bytes(pems[1])
    clock.advance(1)
    assert (await verifier.verify(await token_of(ring, clock))).subject == ALICE
    (folder / FIRST).unlink()
    clock.advance(1)
    with pytest.raises(MeshError) as caught:
        await verifier.verify(old)
    assert caught.value.reason is Reason.TOKEN_SIGNATURE_INVALID


async def test_a_token_is_known_without_waiting_only_while_the_ring_is_fresh_and_the_same(
    ring: KeyFolder, folder: Path, clock: ManualClock, pems: tuple[bytes, ...]
) -> None:
    verifier = KeyRingVerifier(ring, issuer="https://i", audience="a")
    token = await token_of(ring, clock)
    assert verifier.known(token) is None
    found = await verifier.verify(token)
    assert verifier.known(token) == found
    clock.advance(1)
    assert verifier.known(token) is None
    (folder / SECOND).write_bytes(pems[1])
    # Another task refreshed the ring meanwhile.
    await ring.jwks()
    assert verifier.known(token) is None
    await verifier.verify(token)
    assert verifier.known(token) == found
