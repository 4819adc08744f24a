"""Tokens: each way of being wrong has its own reason."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import jwt
import pytest

from libs.common.auth import tokens
from libs.common.auth.revocations import RevocationView, Revoked
from libs.common.auth.tokens import TokenVerifier
from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock

ISSUER = "https://authz.toolmesh.local"


@pytest.fixture
def verifier(signer: Any) -> TokenVerifier:
    return TokenVerifier(signer.fetch_jwks, issuer=ISSUER, audience="toolmesh", refetch_seconds=0.0)


async def reason(verifier: TokenVerifier, token: str) -> Reason:
    with pytest.raises(MeshError) as caught:
        await verifier.verify(token)
    return caught.value.reason


async def test_a_good_token_becomes_an_identity(verifier: TokenVerifier, signer: Any) -> None:
    identity = await verifier.verify(signer.mint(tools=[{"tool": "arith*", "version": "^1"}], groups=["ops"], trust=40))
    assert identity.subject == "did:web:toolmesh.local:users:alice"
    assert identity.tools[0].version_constraint == "^1"
    assert (identity.groups, identity.trust_level) == (("ops",), 40)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exp": 1_000_000_000}, Reason.TOKEN_EXPIRED),
        ({"aud": "elsewhere"}, Reason.TOKEN_AUDIENCE_INVALID),
        ({"iss": "https://evil.example"}, Reason.TOKEN_AUDIENCE_INVALID),
        ({"nbf": 9_999_999_999}, Reason.TOKEN_MALFORMED),
        ({"jti": None}, Reason.TOKEN_MALFORMED),
        ({"sub": "alice"}, Reason.TOKEN_MALFORMED),
        ({"tools": "all"}, Reason.TOKEN_MALFORMED),
        ({"trust": "high"}, Reason.TOKEN_MALFORMED),
    ],
)
async def test_a_spoiled_claim_is_refused(
    verifier: TokenVerifier, signer: Any, changes: dict[str, Any], expected: Reason
) -> None:
    assert await reason(verifier, signer.mint(**changes)) is expected


async def test_forgeries_are_refused(verifier: TokenVerifier, signer: Any) -> None:
    other = type(signer)(kid=signer.kid)
    unknown = type(signer)(kid="unknown")
    none = jwt.encode({"sub": "did:web:x"}, None, "none", {"kid": signer.kid})  # type: ignore[arg-type]
    symmetric = jwt.encode({"sub": "did:web:x"}, "x" * 32, "HS256", {"kid": signer.kid})
    for token in (other.mint(), unknown.mint(), none, symmetric):
        assert await reason(verifier, token) is Reason.TOKEN_SIGNATURE_INVALID
    head, body, tail = signer.mint().split(".")
    widened = (
        base64.urlsafe_b64encode(base64.urlsafe_b64decode(body + "==").replace(b"alice", b"admin")).decode().rstrip("=")
    )
    assert await reason(verifier, f"{head}.{widened}.{tail}") is Reason.TOKEN_SIGNATURE_INVALID


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c", "é.ü.ö", "." * 10, "x" * 20_000])
async def test_what_is_no_token_is_malformed(verifier: TokenVerifier, token: str) -> None:
    assert await reason(verifier, token) is Reason.TOKEN_MALFORMED


async def test_a_remembered_token_still_expires(
    verifier: TokenVerifier, signer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = signer.mint()
    await verifier.verify(token)
    now = time.time()
    monkeypatch.setattr(tokens.time, "time", lambda: now + 700)  # type: ignore[attr-defined]
    assert await reason(verifier, token) is Reason.TOKEN_EXPIRED


async def test_what_is_known_without_waiting_is_what_verifying_would_say(
    signer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    view = RevocationView(clock)
    view.apply((), policy_set_version="1", snapshot=True)
    verifier = TokenVerifier(signer.fetch_jwks, issuer=ISSUER, audience="toolmesh", revocations=view)
    token = signer.mint()
    assert verifier.known(token) is None
    identity = await verifier.verify(token)
    assert verifier.known(token) is identity
    assert verifier.known(token + "x") is None
    clock.advance(view.max_silence + 1)
    assert verifier.known(token) is None, "what was revoked meanwhile is unknown"
    revoked = Revoked("token", identity.token_id, 0.0, 9e9)
    view.apply([revoked], policy_set_version="1", snapshot=False)
    assert verifier.known(token) is None
    view.apply((), policy_set_version="1", snapshot=True)
    assert verifier.known(token) is identity
    now = time.time()
    monkeypatch.setattr(tokens.time, "time", lambda: now + 700)  # type: ignore[attr-defined]
    assert verifier.known(token) is None


async def test_nothing_is_known_once_the_keys_are_due_to_be_looked_at(signer: Any) -> None:
    verifier = TokenVerifier(signer.fetch_jwks, issuer=ISSUER, audience="toolmesh", refresh_seconds=0.0)
    token = signer.mint()
    await verifier.verify(token)
    assert verifier.known(token) is None


async def test_a_removed_key_is_forgotten_with_every_token_it_signed(signer: Any) -> None:
    old, new = type(signer)(kid="old"), type(signer)(kid="new")
    served = [old]
    verifier = TokenVerifier(lambda: served[0].fetch_jwks(), issuer=ISSUER, audience="toolmesh", refetch_seconds=0.0)
    token = old.mint()
    await verifier.verify(token)
    served[0] = new
    await verifier.verify(new.mint())
    assert await reason(verifier, token) is Reason.TOKEN_SIGNATURE_INVALID


async def test_made_up_key_ids_do_not_become_a_flood_of_fetches(signer: Any) -> None:
    fetches = 0

    async def fetch() -> bytes:
        nonlocal fetches
        fetches += 1
        return await signer.fetch_jwks()

    verifier = TokenVerifier(fetch, issuer=ISSUER, audience="toolmesh", refetch_seconds=60)
    for number in range(20):
        assert (
            await reason(verifier, type(signer)(kid=f"k{number}", key=signer.key).mint())
            is Reason.TOKEN_SIGNATURE_INVALID
        )
    assert fetches == 1


async def test_a_key_that_is_no_longer_published_is_forgotten_without_a_new_one_being_seen(signer: Any) -> None:
    old, new = type(signer)(kid="old"), type(signer)(kid="new")
    served = [old]
    verifier = TokenVerifier(lambda: served[0].fetch_jwks(), issuer=ISSUER, audience="toolmesh", refresh_seconds=0.0)
    token = old.mint()
    await verifier.verify(token)
    served[0] = new
    with pytest.raises(MeshError) as caught:
        for _ in range(100):
            await verifier.verify(token)
            await asyncio.sleep(0)
    assert caught.value.reason is Reason.TOKEN_SIGNATURE_INVALID


async def test_a_token_that_holds_longer_than_any_may_is_refused(signer: Any) -> None:
    """The edge refuses it too, but not everyone comes through the edge."""
    now = int(time.time())
    hour = TokenVerifier(signer.fetch_jwks, issuer=ISSUER, audience="toolmesh", max_lifetime=3600)
    assert (await hour.verify(signer.mint(iat=now, exp=now + 3600))).expires_at == now + 3600
    for claims in ({"iat": now, "exp": now + 7200}, {"iat": now - 7200, "exp": now + 600}):
        assert await reason(hour, signer.mint(**claims)) is Reason.TOKEN_MALFORMED
    day = TokenVerifier(signer.fetch_jwks, issuer=ISSUER, audience="toolmesh")
    assert await day.verify(signer.mint(iat=now, exp=now + 86_400))
    assert await reason(day, signer.mint(iat=now, exp=now + 30 * 86_400)) is Reason.TOKEN_MALFORMED
