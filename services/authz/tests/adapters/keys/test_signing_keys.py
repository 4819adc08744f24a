"""Signing keys from files: accepted types, key ids and the published key set."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519

from services.authz.adapters.keys.signing_keys import SigningKeysError, read_key_set
from services.authz.adapters.keys.thumbprints import jwk_thumbprint
from services.authz.tests.conftest import FIRST, SECOND, rsa_pem


def test_the_thumbprint_is_that_of_the_standard() -> None:
    """The example of RFC 7638, section 3.1."""
    modulus = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtV"
        "T86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknj"
        "hMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQ"
        "R0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQ"
        "vRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2Nc"
        "Rwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzK"
        "nqDKgw"
    )
    assert jwk_thumbprint({"kty": "RSA", "n": modulus, "e": "AQAB"}) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


def test_the_newest_file_name_signs_and_every_public_half_is_published(folder: Path, pems: tuple[bytes, ...]) -> None:
    (folder / SECOND).write_bytes(pems[1])
    (folder / "notes.txt").write_text("not a key")
    found = read_key_set(folder)
    published = json.loads(found.jwks)["keys"]
    assert [key["kid"] for key in published] == [key.kid for key in found.keys]
    assert found.active.kid == published[1]["kid"]
    assert {frozenset(key) for key in published} == {frozenset({"kty", "n", "e", "kid", "alg", "use"})}
    for key in published:
        members = {name: key[name] for name in ("e", "kty", "n")}
        canonical = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
        expected = base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
        assert key["kid"] == expected


KINDS = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.parametrize("algorithm", KINDS)
async def test_a_signature_verifies_with_the_published_key(folder: Path, algorithm: str) -> None:
    (folder / SECOND).write_bytes(pem_of(KINDS[algorithm]()))
    found = read_key_set(folder)
    token = await found.active.sign({"sub": "a"})
    key = jwt.PyJWKSet.from_json(found.jwks.decode()).keys[1]
    assert jwt.decode(token, key, algorithms=[algorithm]) == {"sub": "a"}
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "JWT", "kid": found.active.kid}
    assert set(json.loads(found.jwks)["keys"][1]).isdisjoint({"d", "p", "q", "dp", "dq", "qi"})


def test_a_known_key_is_not_parsed_again(folder: Path, pems: tuple[bytes, ...]) -> None:
    before = read_key_set(folder)
    (folder / SECOND).write_bytes(pems[1])
    after = read_key_set(folder, before.keys)
    assert after.keys[0] is before.keys[0]


def pem_of(key: Any) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    pem: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return pem


def unusable_files() -> dict[str, bytes]:
    private = serialization.PrivateFormat.PKCS8
    key = rsa.generate_private_key(65537, 2048)
    locked = key.private_bytes(serialization.Encoding.PEM, private, serialization.BestAvailableEncryption(b"secret"))
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return {
        "empty": b"",
        "half": rsa_pem()[:400],
        "short": rsa_pem(1024),
        "another curve": pem_of(ec.generate_private_key(ec.SECP384R1())),
        "another kind": pem_of(x25519.X25519PrivateKey.generate()),
        "locked": locked,
        "only the public half": public,
    }


@pytest.mark.parametrize(
    "what", ["empty", "half", "short", "another curve", "another kind", "locked", "only the public half"]
)
def test_a_file_that_holds_no_usable_key_is_refused(folder: Path, what: str) -> None:
    (folder / SECOND).write_bytes(unusable_files()[what])
    with pytest.raises(SigningKeysError):
        read_key_set(folder)


def test_a_folder_without_keys_is_refused(folder: Path) -> None:
    (folder / FIRST).unlink()
    with pytest.raises(SigningKeysError):
        read_key_set(folder)


def test_private_numbers_stay_out_of_sight(folder: Path) -> None:
    found = read_key_set(folder)
    assert "private" not in repr(found).lower()
    assert set(json.loads(found.jwks)["keys"][0]).isdisjoint({"d", "p", "q", "dp", "dq", "qi"})
