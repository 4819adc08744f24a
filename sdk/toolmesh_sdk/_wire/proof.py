"""Tokens that are bound to a key: every call carries a proof, made for that call, that the caller holds the key (RFC 9449)."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import grpc
import grpc.aio

from toolmesh_sdk._wire.connection import Endpoint, Pem, read_pem


class ProofKey:
    """An elliptic-curve key (P-256): from a PEM, or made now. Ask for a token that is bound to its `thumbprint`."""

    def __init__(self, pem: Pem | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from jwt.algorithms import ECAlgorithm

        content = read_pem(pem)
        key = ec.generate_private_key(ec.SECP256R1()) if content is None else load_pem_private_key(content, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("a proof is made with a P-256 key")
        found = json.loads(ECAlgorithm.to_jwk(key.public_key()))
        self._key, self._jwk = key, {name: str(found[name]) for name in ("crv", "kty", "x", "y")}

    @property
    def thumbprint(self) -> str:
        """The RFC 7638 thumbprint, as `Confirmation.jwk_thumbprint` names it."""
        return _encoded(json.dumps(self._jwk, separators=(",", ":"), sort_keys=True).encode())

    def proof(self, token: str, url: str) -> str:
        """Make the proof for one POST of this token to this address. It is good once, for a minute."""
        import jwt

        claims = {
            "htm": "POST",
            "htu": url,
            "iat": int(time.time()),
            "jti": str(uuid.uuid4()),
            "ath": _encoded(token.encode()),
        }
        return jwt.encode(claims, self._key, "ES256", {"typ": "dpop+jwt", "jwk": self._jwk})


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: Any


class Prover(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    """Adds a proof to every call that carries a token."""

    def __init__(self, key: ProofKey, endpoint: Endpoint) -> None:
        self._key, self._origin = key, endpoint.origin

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(self._proved(client_call_details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(self._proved(client_call_details), request)

    def _proved(self, details: Any) -> _Details:
        metadata = proved(self._key, self._origin, details.method, details.metadata)
        compression = getattr(details, "compression", None)
        return _Details(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready, compression
        )


class AsyncUnaryProver(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    """The same for asyncio, for calls with one answer."""

    def __init__(self, key: ProofKey, endpoint: Endpoint) -> None:
        self._key, self._origin = key, endpoint.origin

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(_aio_proved(self._key, self._origin, client_call_details), request)


class AsyncStreamProver(grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    """The same for asyncio, for calls with many answers."""

    def __init__(self, key: ProofKey, endpoint: Endpoint) -> None:
        self._key, self._origin = key, endpoint.origin

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(_aio_proved(self._key, self._origin, client_call_details), request)


def _aio_proved(key: ProofKey, origin: str, details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
    method = details.method.decode() if isinstance(details.method, bytes) else details.method
    metadata = grpc.aio.Metadata(*proved(key, origin, method, tuple(details.metadata or ())))
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


def proved(key: ProofKey, origin: str, method: str, metadata: Any) -> list[tuple[str, str | bytes]]:
    """Return the metadata of a call with a proof for the token in it; unchanged when there is none."""
    found = list(metadata or ())
    token = next((str(value).partition(" ")[2] for name, value in found if name == "authorization"), "")
    if not token:
        return found
    kept = [(name, value) for name, value in found if name != "authorization"]
    return [*kept, ("authorization", f"DPoP {token}"), ("dpop", key.proof(token, origin + method))]
