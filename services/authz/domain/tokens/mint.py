"""Minting: an authority becomes a signed token that every verifier accepts, and is remembered before anybody holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from libs.common.auth.authority import Authority
from libs.common.auth.claims import claims_of, descendants_claims, identity_of
from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.runtime.clock import Clock
from services.authz.domain.errors import token_too_large, token_unacceptable
from services.authz.domain.model import IssuedToken, LedgerEntry
from services.authz.domain.ports import KeyRing, Ledger


@dataclass(frozen=True)
class Mint:
    """Signs in the name of one issuer."""

    keys: KeyRing
    ledger: Ledger
    clock: Clock
    issuer: str
    max_token_bytes: int

    def now(self) -> int:
        """Return the present second; times in tokens are whole seconds."""
        return int(self.clock.now().timestamp())

    async def __call__(self, authority: Authority, parent: Identity | None = None) -> IssuedToken:
        """Return the token. Raises what a verifier would raise about it, so nothing is signed that is not accepted."""
        key = await self.keys.active()
        claims = self._claims(authority, parent)
        minted = identity_of(claims, key.kid)
        token = await key.sign(claims)
        if len(token) > self.max_token_bytes:
            raise token_too_large(self.max_token_bytes)
        await self.ledger.record(_entry(minted))
        return IssuedToken(token, claims)

    async def asked(self, authority: Authority, parent: Identity | None = None) -> IssuedToken:
        """Return the token that somebody described. What no verifier would accept is then the fault of their request, for there is no
        token yet that could be malformed: INVALID_REQUEST."""
        try:
            return await self(authority, parent)
        except MeshError as error:
            if error.reason is Reason.TOKEN_MALFORMED:
                raise token_unacceptable() from error
            raise

    def _claims(self, authority: Authority, parent: Identity | None) -> Mapping[str, Any]:
        passed_through = {"act": []} if parent is None else descendants_claims(parent)
        return {"iss": self.issuer, "jti": new_id(), "iat": self.now(), **claims_of(authority), **passed_through}


def _entry(minted: Identity) -> LedgerEntry:
    return LedgerEntry(
        token_id=minted.token_id,
        subject=minted.subject,
        tier=minted.tier,
        issued_at=datetime.fromtimestamp(minted.issued_at, UTC),
        expires_at=datetime.fromtimestamp(minted.expires_at, UTC),
        key_id=minted.key_id,
        scopes=tuple(sorted(minted.scopes)),
        tools=minted.tools,
        agent=minted.agent,
        parent_id=minted.lineage[-1].token_id if minted.lineage else "",
        root_id=minted.root_token_id,
    )
