"""A token issuer without a server: unsigned tokens and a ledger in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from libs.common.auth.claims import identity_of
from libs.common.auth.constraints import constraint_cost
from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.authz.domain.model import IssuedToken, LedgerEntry, ResolvedDid
from services.authz.domain.tokens.delegate_token import DelegateToken
from services.authz.domain.tokens.deriver import TokenDeriver
from services.authz.domain.tokens.issue_token import IssueToken
from services.authz.domain.tokens.minter import TokenMinter
from services.authz.domain.tokens.narrow_token import NarrowToken

ALICE = "did:web:toolmesh.local:users:alice"
BOT = "did:web:toolmesh.local:agents:bot"


class PlainKey:
    """A SigningKey whose tokens are plain JSON."""

    kid = "plain"

    async def sign(self, claims: Mapping[str, Any]) -> str:
        return json.dumps(claims)


class PlainRing:
    """A KeyRing with one key."""

    async def active(self) -> PlainKey:
        return PlainKey()

    async def jwks(self) -> bytes:
        return b'{"keys": []}'


@dataclass
class ListLedger:
    """A Ledger in memory that can be made unavailable."""

    entries: list[LedgerEntry] = field(default_factory=list)
    down: bool = False

    async def record(self, entry: LedgerEntry) -> None:
        if self.down:
            raise MeshError(Reason.SERVICE_UNAVAILABLE)
        self.entries.append(entry)


@dataclass
class KnownDids:
    """A DidResolver that resolves all DIDs except `unknown`."""

    unknown: tuple[str, ...] = ()
    thumbprints: tuple[str, ...] = ()

    async def resolve(self, did: str) -> ResolvedDid:
        if did in self.unknown:
            raise MeshError(Reason.DID_NOT_FOUND)
        return ResolvedDid(did, self.thumbprints)


@dataclass
class Issuer:
    """The use cases that mint tokens, with fake ports."""

    clock: Clock
    ledger: ListLedger = field(default_factory=ListLedger)
    dids: KnownDids = field(default_factory=KnownDids)

    def __post_init__(self) -> None:
        self.minter = TokenMinter(PlainRing(), self.ledger, self.clock, "https://issuer.test", 16_384)  # type: ignore[arg-type]
        self.issue = IssueToken(self.minter, "toolmesh", 86_400, constraint_cost)
        deriver = TokenDeriver(self.minter, constraint_cost)
        self.delegate = DelegateToken(deriver, self.dids)
        self.narrow = NarrowToken(deriver)


def read(issued: IssuedToken) -> Identity:
    """Parse a token like a verifier."""
    return identity_of(json.loads(issued.token), "plain")
