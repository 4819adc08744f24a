"""Tokens that a hostile, broken or merely late client would send. What becomes of each is a row of docs/tokens.md."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from libs.common.ids import new_id
from tests.harness.clients.jose import assembled, hs256, part, rs256, unsigned

ACCEPTED = "accepted"
ALICE = "did:web:toolmesh.local:users:alice"
BOT = "did:web:toolmesh.local:agents:bot"
_IMPOSTOR = rsa.generate_private_key(65537, 2048)
_ROW = re.compile(r"^\| (?P<case>[^|]+?) \| (?P<outcome>accepted|E\d{4}) \|", re.MULTILINE)


def outcomes(repository: Path) -> dict[str, str]:
    """Return the table of the documentation: what becomes of each case."""
    text = (repository / "docs" / "tokens.md").read_text()
    table = text[text.index("## Hostile tokens") :]
    return {row["case"]: row["outcome"] for row in _ROW.finditer(table)}


@dataclass(frozen=True)
class Workshop:
    """Makes tokens with the mesh's own key, or pretends to."""

    key: RSAPrivateKey
    kid: str
    issuer: str = "https://authz.toolmesh.local"
    audience: str = "toolmesh"

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return good claims with changes; None takes a claim away."""
        now = int(time.time())
        good = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": ALICE,
            "jti": new_id(),
            "iat": now - 120,
            "nbf": now - 120,
            "exp": now + 600,
            "tier": "user",
            "scope": "tools:call tools:read",
            "tools": [{"tool": "*", "version": ""}],
            "depth": 3,
            "act": [],
            **changes,
        }
        return {name: value for name, value in good.items() if value is not None}

    def token(self, header: Any = None, payload: Any = None, **changes: Any) -> str:
        """Sign as the mesh does."""
        known = {"alg": "RS256", "kid": self.kid, "typ": "JWT"}
        head = header if isinstance(header, bytes) else {**known, **(header or {})}
        head = {k: v for k, v in head.items() if v is not None} if isinstance(head, dict) else head
        return assembled(head, payload or self.claims(**changes), rs256(self.key))

    def forged(self, header: dict[str, Any], signature: Any = None) -> str:
        """Sign with another key, or in another way."""
        head = {"alg": "RS256", "kid": self.kid, **header}
        return assembled(head, self.claims(), signature or rs256(_IMPOSTOR))

    def child(self, *, steps: int = 1, older: Any = None, last: Any = None, **changes: Any) -> str:
        """Sign a token that was passed on: `older` are changes to all that it came from, `last` to its parent."""
        ancestors = []
        for step in range(steps):
            place = {"tier": "agent", "agent": BOT} if step else {}
            bounds = {"depth": 8 - step, "kid": self.kid, "exp": _now(600 - 10 * step), **place, **(older or {})}
            ancestors.append(self.claims(**bounds, act=None, iss=None))
        ancestors[-1].update(last or {})
        act = [{"sub": a.get("agent", a["sub"]), "jti": a["jti"]} for a in ancestors]
        own = {"tier": "agent", "agent": BOT, "depth": 0, "exp": _now(300), "act": act, "line": ancestors}
        return self.token(**{**own, **changes})

    @property
    def public_pem(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @property
    def public_der(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def twice(claims: dict[str, Any], more: str) -> bytes:
    """Write claims with one of them once more at the end."""
    return (json.dumps(claims)[:-1] + f", {more}}}").encode()


def _cut(token: str) -> str:
    # By whole bytes: what is left over of a letter would be another mistake.
    letters = len(token.rpartition(".")[2])
    return token[: -(letters % 4 or 4)]


def _changed(w: Workshop) -> str:
    head, _, signature = w.token().split(".")
    return f"{head}.{part(w.claims(trust=100))}.{signature}"


def _flattened(w: Workshop) -> str:
    head, payload, signature = w.token().split(".")
    return json.dumps({"protected": head, "payload": payload, "signature": signature})


def _now(seconds: int) -> int:
    return int(time.time()) + seconds


_IMPOSTOR_JWK = {"kty": "RSA", "n": part(_IMPOSTOR.public_key().public_numbers().n.to_bytes(256, "big")), "e": "AQAB"}

# Case to token. The names are those of the table.
CASES: dict[str, Callable[[Workshop], str]] = {
    "a token as the mesh signs it": lambda w: w.token(),
    "`alg: none`, without a signature": lambda w: w.forged({"alg": "none"}, unsigned),
    "`alg: none`, with the signature of a good token": lambda w: w.forged({"alg": "none"}, rs256(w.key)),
    "`alg: HS256`, keyed with the public key as PEM": lambda w: w.forged({"alg": "HS256"}, hs256(w.public_pem)),
    "`alg: HS256`, keyed with the public key as DER": lambda w: w.forged({"alg": "HS256"}, hs256(w.public_der)),
    "`alg: RS256`, but an HMAC keyed with the public key": lambda w: w.forged({}, hs256(w.public_pem)),
    "`alg: ES256` for a key that is RSA": lambda w: w.forged({"alg": "ES256"}, rs256(w.key)),
    "`alg: RS512`": lambda w: w.forged({"alg": "RS512"}, rs256(w.key)),
    "`alg` missing": lambda w: w.token({"alg": None}),
    "signed by a stranger, under the mesh's `kid`": lambda w: w.forged({}),
    "signed by a stranger, with `jku`": lambda w: w.forged({"jku": "https://evil.example/keys"}),
    "signed by a stranger, with `x5u`": lambda w: w.forged({"x5u": "https://evil.example/chain"}),
    "signed by a stranger, with `jwk`": lambda w: w.forged({"jwk": _IMPOSTOR_JWK}),
    "signed by a stranger, with `x5c`": lambda w: w.forged({"x5c": ["AAAA"]}),
    "well signed, with `jku`": lambda w: w.token({"jku": "https://authz.toolmesh.local/keys"}),
    "well signed, with an unknown `kid`": lambda w: w.token({"kid": "made-up"}),
    "well signed, without `kid`": lambda w: w.token({"kid": None}),
    "`kid` that is a path": lambda w: w.token({"kid": "../../../../dev/null"}),
    "`kid` that is no text": lambda w: w.token({"kid": {"$ne": ""}}),
    "`typ` of a proof (`dpop+jwt`)": lambda w: w.token({"typ": "dpop+jwt"}),
    "`typ` missing": lambda w: w.token({"typ": None}),
    "`crit` with an extension": lambda w: w.token({"crit": ["exp"], "exp": 1}),
    "`b64: false`": lambda w: w.token({"b64": False, "crit": ["b64"]}),
    "a header parameter that is not known (`zip`)": lambda w: w.token({"zip": "DEF"}),
    "nested (`cty: JWT`)": lambda w: w.token({"cty": "JWT"}, w.token().encode()),
    "encrypted (five parts)": lambda w: w.token() + ".AAAA.AAAA",
    "JSON serialisation": _flattened,
    "a header parameter twice": lambda w: w.token(twice({"alg": "RS256", "kid": w.kid}, '"alg": "none"')),
    "a claim twice": lambda w: w.token(None, twice(w.claims(), f'"sub": "{ALICE}"')),
    "a claim twice, deep inside": lambda w: w.token(None, twice(w.claims(), '"budget": {"calls": 1, "calls": 9}')),
    "claims that are no object": lambda w: w.token(None, b"[1]"),
    "claims nested a thousand times": lambda w: w.token(None, twice(w.claims(), '"x": ' + "[" * 1000 + "]" * 1000)),
    "claims changed after signing": _changed,
    "the signature cut short": lambda w: _cut(w.token()),
    "letters that are not base64url": lambda w: w.token() + "!",
    "longer than 16,384 characters": lambda w: w.token(surplus="x" * 12_300),
    "expired 60 s ago": lambda w: w.token(exp=_now(-60)),
    "expired 1 s ago": lambda w: w.token(exp=_now(-1)),
    "begins in 60 s": lambda w: w.token(nbf=_now(60)),
    "begins in 3 s": lambda w: w.token(nbf=_now(3)),
    "made 60 s from now": lambda w: w.token(iat=_now(60)),
    "`exp` missing": lambda w: w.token(exp=None),
    "`exp` that is no time": lambda w: w.token(exp="soon"),
    "`exp` beyond all numbers": lambda w: w.token(None, twice(w.claims(exp=None), '"exp": 1e400')),
    "another audience": lambda w: w.token(aud="another-mesh"),
    "`aud` missing": lambda w: w.token(aud=None),
    "another issuer": lambda w: w.token(iss="https://evil.example"),
    "`sub` that is no DID": lambda w: w.token(sub="alice"),
    "`jti` missing": lambda w: w.token(jti=None),
    "a tier that does not exist": lambda w: w.token(tier="root"),
    "`trust` above 100": lambda w: w.token(trust=101),
    "`tools` with an expression": lambda w: w.token(tools=[{"tool": "[a-z]?"}]),
    "`cnf` of an unknown kind": lambda w: w.token(cnf={"kid": "x"}),
    "an agent's token without its chain": lambda w: w.token(tier="agent", agent=BOT),
    "a derived token, each step a subset": lambda w: w.child(),
    "a chain of 9": lambda w: w.child(steps=9),
    "a chain that names others than the lineage": lambda w: w.child(act=[{"sub": BOT, "jti": "1"}]),
    "a child with a tool that the parent lacks": lambda w: w.child(
        older={"tools": [{"tool": "ech*", "version": "^1"}]}
    ),
    "a child with a scope that the parent lacks": lambda w: w.child(scope="tools:call tools:admin"),
    "a child that outlives its parent": lambda w: w.child(exp=_now(3600)),
    "a child that dropped a constraint": lambda w: w.child(older={"args": [{"tool": "*", "schema": {}}]}),
    "a child with a larger budget": lambda w: w.child(older={"budget": {"calls": 1}}, budget={"calls": 2}),
    "a child of a parent that may not be passed on": lambda w: w.child(older={"depth": 0}),
    "a child of an invocation's token": lambda w: w.child(steps=2, last={"tier": "invocation"}),
}
