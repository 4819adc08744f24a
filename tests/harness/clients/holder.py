"""A holder of the key that a token is bound to, which makes proofs with it."""

from __future__ import annotations

import hashlib
import json
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from libs.common.auth.dpop import key_thumbprint
from libs.common.ids import new_id


@dataclass
class Holder:
    """Holds an elliptic-curve key."""

    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def jwk(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return {name: found[name] for name in ("kty", "crv", "x", "y")}

    @property
    def thumbprint(self) -> str:
        return key_thumbprint(self.jwk)

    def proof(self, token: str, url: str, **changes: Any) -> str:
        """Make a proof for one POST of this token to this address."""
        claims = {
            "htm": "POST",
            "htu": url,
            "iat": int(time.time()),
            "jti": new_id(),
            "ath": urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode(),
            **changes,
        }
        return jwt.encode(claims, self.key, "ES256", {"typ": "dpop+jwt", "jwk": self.jwk})
