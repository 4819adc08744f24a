"""Tokens of external issuers are verified with the issuer's keys and mapped by its configuration."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.authz.adapters.issuers.keys import OUTAGE_SECONDS, REFETCH_SECONDS, REFRESH_SECONDS
from services.authz.adapters.issuers.tokens import TrustedIssuerVerifier
from services.authz.adapters.issuers.trusted_issuers import read_trusted_issuers
from services.authz.domain.tokens.exchange_token import ExchangeToken
from services.authz.tests.adapters.issuers.test_trusted_issuers import entry, grant
from services.authz.tests.https_server import HttpsServer, serving
from services.authz.tests.token_issuer import Issuer, read
from tests.harness.clients.jose import assembled, hs256, rs256, unsigned

LOGIN = "https://login.example.com"


class Provider:
    """An OpenID provider: its keys, and the tokens it signs."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "RS256": rsa.generate_private_key(65537, 2048),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate(),
        }

    def jwks(self, *algorithms: str, **changes: Any) -> bytes:
        keys = []
        for algorithm in algorithms or self.keys:
            public = jwt.get_algorithm_by_name(algorithm).to_jwk(self.keys[algorithm].public_key(), as_dict=True)
            keys.append({**public, "kid": algorithm.lower(), **changes})
        return json.dumps({"keys": keys}).encode()

    def sign(self, algorithm: str = "RS256", header: dict[str, Any] | None = None, **changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": LOGIN,
            "aud": "toolmesh",
            "sub": "auth0|alice/ä:1",
            "org": "acme",
            "groups": ["ops", "root", 7],
            "iat": now,
            "exp": now + 300,
            "scope": "tools:admin",
            "tools": [{"tool": "*"}],
            "trust": 100,
            **changes,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.keys[algorithm], algorithm, {"kid": algorithm.lower(), **(header or {})})


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture
def https_server(pki: Any, provider: Provider) -> Iterator[HttpsServer]:
    with serving(pki) as server:
        server.documents["/keys"] = provider.jwks()
        yield server


@pytest.fixture
def trusted(
    tmp_path: Path, pki: Any, https_server: HttpsServer, clock: ManualClock, quiet: Log
) -> Callable[..., TrustedIssuerVerifier]:
    """Return a factory of tokens' readers, with changes to what is configured."""

    def make(**changes: Any) -> TrustedIssuerVerifier:
        algorithms = ["RS256", "ES256", "EdDSA"]
        good = entry(jwks=https_server.address + "/keys", ca=str(pki.ca), algorithms=algorithms, **changes)
        path = tmp_path / "issuers.json"
        path.write_text(json.dumps({"issuers": [good]}))
        return TrustedIssuerVerifier(read_trusted_issuers(path, max_lifetime=3600), clock, quiet)

    return make


async def reason(tokens: TrustedIssuerVerifier, token: str) -> Reason:
    with pytest.raises(MeshError) as caught:
        await tokens.verify(token)
    return caught.value.reason


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_good_token_is_read_by_the_mapping(trusted: Any, provider: Provider, algorithm: str) -> None:
    shown = await trusted().verify(provider.sign(algorithm, {"x5t": "ignored", "typ": "at+jwt"}))
    assert shown.subject == "did:web:login.example.com:users:auth0%7Calice%2F%C3%A4%3A1"
    assert (shown.tenant, shown.groups) == ("acme", ("ops",))
    assert shown.grant.scopes == ("tools:call",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"iss": "https://elsewhere.example"}, Reason.TOKEN_AUDIENCE_INVALID),
        ({"iss": LOGIN + "/"}, Reason.TOKEN_AUDIENCE_INVALID),
        ({"aud": "another-app"}, Reason.TOKEN_AUDIENCE_INVALID),
        ({"exp": 1_000_000_000}, Reason.TOKEN_EXPIRED),
        ({"exp": None}, Reason.TOKEN_MALFORMED),
        ({"iat": None}, Reason.TOKEN_MALFORMED),
        ({"nbf": 9_999_999_999}, Reason.TOKEN_MALFORMED),
        ({"sub": None}, Reason.TOKEN_MALFORMED),
        ({"sub": 7}, Reason.TOKEN_MALFORMED),
        ({"sub": ""}, Reason.TOKEN_MALFORMED),
        ({"sub": "ä" * 200}, Reason.TOKEN_MALFORMED),
        ({"org": None}, Reason.TOKEN_MALFORMED),
        ({"org": ""}, Reason.TOKEN_MALFORMED),
        ({"groups": "ops"}, Reason.TOKEN_MALFORMED),
    ],
)
async def test_a_spoiled_claim_is_refused(trusted: Any, provider: Provider, changes: Any, expected: Reason) -> None:
    assert await reason(trusted(), provider.sign(**changes)) is expected


async def test_no_token_brings_its_own_key(trusted: Any, provider: Provider, https_server: HttpsServer) -> None:
    impostor = Provider()
    https_server.documents["/evil"] = impostor.jwks()
    public = json.loads(impostor.jwks("RS256"))["keys"][0]
    headers: list[dict[str, Any]] = [
        {"jku": https_server.address + "/evil"},
        {"x5u": https_server.address + "/evil"},
        {"jwk": public},
        {"x5c": ["AAAA"]},
        {},
        {"kid": "made-up"},
    ]
    tokens = trusted()
    for header in headers:
        assert await reason(tokens, impostor.sign(header=header)) is Reason.TOKEN_SIGNATURE_INVALID
    assert https_server.requested in (["/keys"], [])


async def test_algorithms_are_not_confused(trusted: Any, provider: Provider, https_server: HttpsServer) -> None:
    tokens = trusted()
    public = provider.keys["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = jwt.decode(provider.sign(), options={"verify_signature": False})
    symmetric = assembled({"alg": "HS256", "kid": "rs256"}, claims, hs256(public))
    disguised = assembled({"alg": "RS256", "kid": "rs256"}, claims, hs256(public))
    none = assembled({"alg": "none", "kid": "rs256"}, claims, unsigned)
    swapped = provider.sign("ES256", {"kid": "rs256"})
    for token in (symmetric, disguised, none, swapped, provider.sign("ES256", {"kid": "eddsa"})):
        assert await reason(tokens, token) is Reason.TOKEN_SIGNATURE_INVALID


async def test_an_algorithm_that_is_not_configured_is_refused(
    tmp_path: Path, provider: Provider, clock: ManualClock, quiet: Log
) -> None:
    keys, path = tmp_path / "keys.json", tmp_path / "issuers.json"
    keys.write_bytes(provider.jwks())
    path.write_text(json.dumps({"issuers": [entry(jwks=str(keys), algorithms=["ES256"])]}))
    tokens = TrustedIssuerVerifier(read_trusted_issuers(path, max_lifetime=3600), clock, quiet)
    await tokens.verify(provider.sign("ES256"))
    assert await reason(tokens, provider.sign("RS256")) is Reason.TOKEN_SIGNATURE_INVALID


async def test_a_claim_that_is_there_twice_is_refused(trusted: Any, provider: Provider) -> None:
    claims = json.dumps(jwt.decode(provider.sign(), options={"verify_signature": False}))
    double = (claims[:-1] + f', "iss": "{LOGIN}"}}').encode()
    token = assembled({"alg": "RS256", "kid": "rs256"}, double, rs256(provider.keys["RS256"]))
    assert await reason(trusted(), token) is Reason.TOKEN_MALFORMED


async def test_keys_rotate_and_made_up_ids_are_no_flood(
    trusted: Any, provider: Provider, https_server: HttpsServer, clock: ManualClock
) -> None:
    https_server.documents["/keys"] = provider.jwks("RS256")
    tokens = trusted()
    await tokens.verify(provider.sign())
    for number in range(20):
        assert await reason(tokens, provider.sign(header={"kid": f"k{number}"})) is Reason.TOKEN_SIGNATURE_INVALID
    assert https_server.requested == ["/keys"]
    https_server.documents["/keys"] = provider.jwks("ES256")
    clock.advance(REFETCH_SECONDS + 1)
    await tokens.verify(provider.sign("ES256"))
    assert await reason(tokens, provider.sign()) is Reason.TOKEN_SIGNATURE_INVALID
    assert https_server.requested == ["/keys", "/keys"]


async def test_keys_survive_an_outage_but_not_for_ever(
    trusted: Any, provider: Provider, https_server: HttpsServer, clock: ManualClock
) -> None:
    tokens = trusted()
    await tokens.verify(provider.sign())
    for answer in (500, b"nonsense", b"{}", b'{"keys": 7}'):
        https_server.documents["/keys"] = answer
        clock.advance(REFRESH_SECONDS + 1)
        await tokens.verify(provider.sign())
    clock.advance(OUTAGE_SECONDS)
    assert await reason(tokens, provider.sign()) is Reason.SERVICE_UNAVAILABLE
    https_server.documents["/keys"] = provider.jwks()
    clock.advance(REFETCH_SECONDS + 1)
    await tokens.verify(provider.sign())


async def test_an_issuer_that_never_answered_is_to_be_tried_again(
    trusted: Any, provider: Provider, https_server: HttpsServer
) -> None:
    https_server.documents["/keys"] = 500
    assert await reason(trusted(), provider.sign()) is Reason.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("changes", [{"use": "enc"}, {"alg": "RS512"}, {"kty": "oct"}, {"n": "AAAA"}])
async def test_a_key_for_something_else_verifies_nothing(
    trusted: Any, provider: Provider, https_server: HttpsServer, changes: dict[str, str]
) -> None:
    https_server.documents["/keys"] = provider.jwks("RS256", **changes)
    assert await reason(trusted(), provider.sign()) is Reason.TOKEN_SIGNATURE_INVALID


async def test_an_exchange_grants_what_is_configured_and_no_longer_than_the_token(
    trusted: Any, provider: Provider, clock: ManualClock
) -> None:
    exchange = ExchangeToken(Issuer(clock).minter, trusted(), "toolmesh")
    short = int(time.time()) + 200
    holder = read(await exchange.execute(provider.sign(exp=short)))
    assert (holder.tier, holder.expires_at, holder.depth, holder.trust_level) == ("user", short, 2, 20)
    assert (holder.scopes, [g.tool for g in holder.tools]) == (frozenset({"tools:call"}), ["arith*", "echo"])
    assert (holder.tenant, holder.groups, holder.audiences) == ("acme", ("ops",), ("toolmesh",))
    long = read(await exchange.execute(provider.sign(exp=short + 86_400)))
    assert long.expires_at - long.not_before == 600
    brief = read(await exchange.execute(provider.sign(), lifetime=30.9, confirmation="jkt:" + "a" * 43))
    assert (brief.expires_at - brief.not_before, brief.confirmation) == (30, "jkt:" + "a" * 43)
    with pytest.raises(MeshError) as caught:
        await exchange.execute(provider.sign(), lifetime=601)
    assert caught.value.reason is Reason.INVALID_REQUEST


async def test_an_exchange_grants_the_scopes_that_are_asked_for_and_no_other(
    trusted: Any, provider: Provider, clock: ManualClock
) -> None:
    exchange = ExchangeToken(Issuer(clock).minter, trusted(**grant(scopes=["tools:call", "audit:read"])), "toolmesh")
    for asked, granted in (((), {"tools:call", "audit:read"}), (("audit:read",), {"audit:read"})):
        assert read(await exchange.execute(provider.sign(), scopes=asked)).scopes == granted
    with pytest.raises(MeshError) as caught:
        await exchange.execute(provider.sign(), scopes=("tools:call", "authz:admin"))
    assert caught.value.reason is Reason.AUTHORITY_EXCEEDED
    assert [violation.path for violation in caught.value.violations] == ["scopes"]


async def test_an_external_token_that_expires_now_is_not_exchanged(
    trusted: Any, provider: Provider, clock: ManualClock
) -> None:
    exchange = ExchangeToken(Issuer(clock).minter, trusted(), "toolmesh")
    with pytest.raises(MeshError) as caught:
        await exchange.execute(provider.sign(exp=int(clock.now().timestamp()) - 2))
    assert caught.value.reason is Reason.TOKEN_EXPIRED
