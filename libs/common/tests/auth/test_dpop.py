"""Proofs of possession: what is accepted, and everything that is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from libs.common.auth.dpop import (
    PROOF_SECONDS,
    SKEW_SECONDS,
    Target,
    certificate_thumbprint,
    check_certificate,
    check_proof,
    encoded,
    key_thumbprint,
    new_proof_cache,
    proven_thumbprint,
)
from libs.common.auth.proof_cache import ProofCache
from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id

NOW = 1_800_000_000.0
TOKEN = "the.bound.token"
PLACE = "https://mesh.example/rpc"
TARGET = Target("POST", "/rpc", ("https://mesh.example:443", "http://127.0.0.1:8080"))


@dataclass
class Holder:
    """A holder of a key that makes proofs with it."""

    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    algorithm: str = "ES256"

    @property
    def jwk(self) -> dict[str, Any]:
        kind = {"ES256": jwt.algorithms.ECAlgorithm, "EdDSA": jwt.algorithms.OKPAlgorithm}.get(
            self.algorithm, jwt.algorithms.RSAAlgorithm
        )
        found: dict[str, Any] = json.loads(kind.to_jwk(self.key.public_key()))  # type: ignore[attr-defined]
        return {name: value for name, value in found.items() if name not in ("key_ops", "kid")}

    @property
    def thumbprint(self) -> str:
        return key_thumbprint(self.jwk)

    def proof(self, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """Make a good proof, spoiled by `changes`; a claim that is None is left out."""
        claims = {
            "htm": "POST",
            "htu": PLACE,
            "iat": int(NOW),
            "jti": new_id(),
            "ath": encoded(hashlib.sha256(TOKEN.encode()).digest()),
            **changes,
        }
        return jwt.encode(
            {name: value for name, value in claims.items() if value is not None},
            self.key,
            self.algorithm,
            {"typ": "dpop+jwt", "jwk": self.jwk, **(header or {})},
        )


@pytest.fixture
def holder() -> Holder:
    return Holder()


def check(proof: str, holder: Holder, *, target: Target = TARGET, shown: ProofCache | None = None) -> None:
    used = new_proof_cache() if shown is None else shown
    check_proof(
        proof, token=TOKEN, subject="did:web:a", thumbprint=holder.thumbprint, target=target, now=NOW, used=used
    )


def problem(proof: str, holder: Holder, **options: Any) -> str:
    with pytest.raises(MeshError) as caught:
        check(proof, holder, **options)
    assert caught.value.reason is Reason.TOKEN_PROOF_INVALID
    return caught.value.metadata["problem"]


@pytest.mark.parametrize(
    "holder",
    [
        Holder(),
        Holder(ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        Holder(rsa.generate_private_key(65537, 2048), "RS256"),
    ],
    ids=["ES256", "EdDSA", "RS256"],
)
def test_a_proof_for_this_request_and_token_is_accepted(holder: Holder) -> None:
    check(holder.proof(), holder)


def test_the_thumbprint_is_that_of_rfc_7638() -> None:
    """The example of RFC 7638, section 3.1."""
    jwk = {
        "kty": "RSA",
        "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtV"
        "T86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3okn"
        "jhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL"
        "5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        "e": "AQAB",
        "alg": "RS256",
        "kid": "2011-04-29",
    }
    assert key_thumbprint(jwk) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


SPOILED: dict[str, tuple[Callable[[Holder], str], str]] = {
    "none": (lambda h: "", "missing"),
    "no token": (lambda h: "abc", "form"),
    "another type": (lambda h: h.proof({"typ": "JWT"}), "form"),
    "no key": (lambda h: h.proof({"jwk": None}), "jwk"),
    "a private key": (lambda h: h.proof({"jwk": {**h.jwk, "d": "AA"}}), "jwk"),
    "another's key": (lambda h: Holder().proof(), "key"),
    "another's key under this one's name": (lambda h: Holder().proof({"jwk": h.jwk}), "form"),
    "a key of another kind": (lambda h: h.proof({"jwk": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}}), "jwk"),
    "a shared secret": (
        lambda h: jwt.encode({"htm": "POST"}, "k" * 64, "HS256", {"typ": "dpop+jwt", "jwk": h.jwk}),
        "form",
    ),
    "no algorithm": (lambda h: jwt.encode({"htm": "POST"}, None, "none", {"typ": "dpop+jwt", "jwk": h.jwk}), "form"),  # type: ignore[arg-type]
    "too long": (lambda h: h.proof(more="x" * 10_000), "form"),
    "another method": (lambda h: h.proof(htm="GET"), "htm"),
    "another path": (lambda h: h.proof(htu="https://mesh.example/other"), "htu"),
    "another host": (lambda h: h.proof(htu="https://other.example/rpc"), "htu"),
    "another port": (lambda h: h.proof(htu="https://mesh.example:8443/rpc"), "htu"),
    "another scheme": (lambda h: h.proof(htu="http://mesh.example/rpc"), "htu"),
    "user information": (lambda h: h.proof(htu="https://mesh.example@other.example/rpc"), "htu"),
    "no address": (lambda h: h.proof(htu="/rpc"), "htu"),
    "an address that is none": (lambda h: h.proof(htu="https://[::1/rpc"), "htu"),
    "no place": (lambda h: h.proof(htu=None), "htu"),
    "too old": (lambda h: h.proof(iat=int(NOW - PROOF_SECONDS - SKEW_SECONDS - 1)), "iat"),
    "too young": (lambda h: h.proof(iat=int(NOW + SKEW_SECONDS + 1)), "iat"),
    "no time": (lambda h: h.proof(iat=None), "iat"),
    "another token": (lambda h: h.proof(ath=encoded(hashlib.sha256(b"another").digest())), "ath"),
    "no token named": (lambda h: h.proof(ath=None), "ath"),
    "no name": (lambda h: h.proof(jti=None), "jti"),
    "an odd name": (lambda h: h.proof(jti=7), "jti"),
}


@pytest.mark.parametrize("kind", SPOILED)
def test_a_proof_that_is_none_is_refused(holder: Holder, kind: str) -> None:
    spoil, expected = SPOILED[kind]
    assert problem(spoil(holder), holder) == expected


@pytest.mark.parametrize(
    "place", [PLACE, "https://MESH.example:443/rpc", "https://mesh.example/rpc?x=1#y", "HTTPS://mesh.example/rpc"]
)
def test_places_that_mean_the_same_are_the_same(holder: Holder, place: str) -> None:
    check(holder.proof(htu=place), holder)


def test_every_origin_of_the_mesh_is_accepted_and_none_without_one(holder: Holder) -> None:
    check(holder.proof(htu="http://127.0.0.1:8080/rpc"), holder)
    assert problem(holder.proof(), holder, target=Target("POST", "/rpc", ())) == "htu"


def test_inside_the_mesh_only_the_path_is_compared(holder: Holder) -> None:
    check(holder.proof(htu="http://executor:1234/a/b"), holder, target=Target("POST", "/a/b", None))
    assert problem(holder.proof(htu="http://executor/a/c"), holder, target=Target("POST", "/a/b", None)) == "htu"


def test_a_proof_is_accepted_once(holder: Holder) -> None:
    shown, proof = new_proof_cache(), holder.proof(jti="once")
    check(proof, holder, shown=shown)
    assert problem(proof, holder, shown=shown) == "replay"
    # Another holder may use the same name.
    other = Holder()
    check(other.proof(jti="once"), other, shown=shown)


def test_a_certificate_is_recognised_by_its_thumbprint(pki: Any) -> None:
    pem, other = (pki.of(name).cert.read_bytes() for name in ("orchestrator", "operator"))
    check_certificate(pem, certificate_thumbprint(pem))
    for shown in (other, None):
        with pytest.raises(MeshError) as caught:
            check_certificate(shown, certificate_thumbprint(pem))
        assert caught.value.reason is Reason.TOKEN_PROOF_INVALID


def oversized_rsa_proof() -> str:
    """Return a proof whose key is so large that a check of its signature costs much."""
    holder = Holder(rsa.generate_private_key(65537, 2048), "RS256")
    modulus = ((1 << 8200) + 1).to_bytes(1026, "big")
    return holder.proof({"jwk": {"kty": "RSA", "e": "AQAB", "n": encoded(modulus)}}, ath=None)


def test_a_request_without_a_token_proves_the_key_alone() -> None:
    holder, used = Holder(), new_proof_cache()
    proof = holder.proof(ath=None)
    assert proven_thumbprint(proof, target=TARGET, now=NOW, used=used) == holder.thumbprint
    for bad, problem in (
        (proof, "replay"),
        (holder.proof(ath=None, htm="GET"), "htm"),
        (holder.proof(ath=None, htu="https://other.example/rpc"), "htu"),
        (holder.proof(ath=None, iat=int(NOW - PROOF_SECONDS - SKEW_SECONDS - 1)), "iat"),
        (holder.proof(ath=None, jti=None), "jti"),
        (oversized_rsa_proof(), "jwk"),
        ("garbage", "form"),
        ("", "missing"),
    ):
        with pytest.raises(MeshError) as caught:
            proven_thumbprint(bad, target=TARGET, now=NOW, used=used)
        assert caught.value.metadata["problem"] == problem
