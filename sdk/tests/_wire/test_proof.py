"""Proofs of possession that the client makes, read with the eyes of the mesh."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from toolmesh_sdk import ProofKey
from toolmesh_sdk._wire.connection import Tls, parse_endpoint
from toolmesh_sdk._wire.proof import add_proof

from libs.common.auth.dpop import Target, check_proof, new_proof_cache


def pem_of(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_a_proof_is_what_the_mesh_accepts() -> None:
    key, used = ProofKey(), new_proof_cache()
    target = Target("POST", "/a.Service/Method", ("https://mesh.example:443",))
    call = {"token": "token", "subject": "did:web:a", "thumbprint": key.thumbprint}
    for _ in range(2):
        proof = key.proof("token", "https://mesh.example/a.Service/Method")
        check_proof(proof, **call, target=target, now=time.time(), used=used)


def test_a_key_is_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "proof.pem"
    path.write_bytes(pem_of(ec.generate_private_key(ec.SECP256R1())))
    assert ProofKey(path).thumbprint == ProofKey(path.read_bytes()).thumbprint != ProofKey().thumbprint


@pytest.mark.parametrize("key", [ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())])
def test_another_kind_of_key_is_refused(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> None:
    with pytest.raises(ValueError):
        ProofKey(pem_of(key))


def test_only_what_carries_a_token_is_proved() -> None:
    key = ProofKey()
    assert add_proof(key, "https://m", "/x", [("traceparent", "t")]) == [("traceparent", "t")]
    found = dict(add_proof(key, "https://m", "/x", [("traceparent", "t"), ("authorization", "Bearer abc")]))
    assert found["authorization"] == "DPoP abc"
    assert set(found) == {"traceparent", "authorization", "dpop"}


@pytest.mark.parametrize(
    ("target", "tls", "origin"),
    [
        ("127.0.0.1:80", None, "http://127.0.0.1:80"),
        ("https://mesh.example", None, "https://mesh.example:443"),
        ("127.0.0.1:5001", Tls(server_name="executor"), "https://executor"),
    ],
)
def test_a_proof_names_the_address_as_the_caller_sees_it(target: str, tls: Tls | None, origin: str) -> None:
    assert parse_endpoint(target, tls).origin == origin
