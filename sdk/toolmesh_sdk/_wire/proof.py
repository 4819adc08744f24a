"""DPoP (RFC 9449): proves with every call that the caller holds the key that its token is bound to."""

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
    """A P-256 key, loaded from a PEM or generated. Request a token that is bound to its `thumbprint`."""

    def __init__(self, pem: Pem | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from jwt.algorithms import ECAlgorithm

        content = read_pem(pem)
        key = ec.generate_private_key(ec.SECP256R1()) if content is None else load_pem_private_key(content, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("a proof needs a P-256 key")
        jwk = json.loads(ECAlgorithm.to_jwk(key.public_key()))
        self._key, self._jwk = key, {name: str(jwk[name]) for name in ("crv", "kty", "x", "y")}

    @property
    def thumbprint(self) -> str:
        """The RFC 7638 thumbprint, as `Confirmation.jwk_thumbprint` names it."""
        return _digest(json.dumps(self._jwk, separators=(",", ":"), sort_keys=True).encode())

    def private_pem(self) -> bytes:
        """Return the key as a PEM without a passphrase. A secret."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def proof(self, token: str, url: str, method: str = "POST") -> str:
        """Return the proof for one request with this token to this URL. It is valid once, for a minute."""
        import jwt

        claims = {
            "htm": method,
            "htu": url,
            "iat": int(time.time()),
            "jti": str(uuid.uuid4()),
            "ath": _digest(token.encode()),
        }
        return jwt.encode(claims, self._key, "ES256", {"typ": "dpop+jwt", "jwk": self._jwk})


def _digest(content: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: Any


class _ProofSource:
    """The key and the origin of the proofs."""

    def __init__(self, key: ProofKey, endpoint: Endpoint) -> None:
        self._key, self._origin = key, endpoint.origin


class Prover(
    _ProofSource,
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    """Adds a proof to every call with a token."""

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(self._add_proof(client_call_details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        return continuation(self._add_proof(client_call_details), request)

    def intercept_stream_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._add_proof(client_call_details), request_iterator)

    def _add_proof(self, details: Any) -> _Details:
        metadata = add_proof(self._key, self._origin, details.method, details.metadata)
        compression = getattr(details, "compression", None)
        return _Details(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready, compression
        )


class AsyncUnaryProver(_ProofSource, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    """Adds a proof to unary calls of asyncio."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(_aio_add_proof(self._key, self._origin, client_call_details), request)


class AsyncStreamProver(_ProofSource, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    """Adds a proof to streaming calls of asyncio."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(_aio_add_proof(self._key, self._origin, client_call_details), request)


class AsyncBidirectionalProver(_ProofSource, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[type-arg]
    """Adds a proof to bidirectional calls of asyncio."""

    async def intercept_stream_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request_iterator: Any
    ) -> Any:
        return await continuation(_aio_add_proof(self._key, self._origin, client_call_details), request_iterator)


def _aio_add_proof(key: ProofKey, origin: str, details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
    method = details.method.decode() if isinstance(details.method, bytes) else details.method
    metadata = grpc.aio.Metadata(*add_proof(key, origin, method, tuple(details.metadata or ())))
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


def add_proof(key: ProofKey, origin: str, method: str, metadata: Any) -> list[tuple[str, str | bytes]]:
    """Return the metadata of a call with a proof for its token; unchanged if it has none."""
    entries = list(metadata or ())
    token = next((str(value).partition(" ")[2] for name, value in entries if name == "authorization"), "")
    if not token:
        return entries
    others = [(name, value) for name, value in entries if name != "authorization"]
    return [*others, ("authorization", f"DPoP {token}"), ("dpop", key.proof(token, origin + method))]
