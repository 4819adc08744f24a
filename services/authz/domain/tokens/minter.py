"""Mints tokens: signs the claims of an authority and records the token in the ledger before it is returned."""

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
from libs.common.json.canonical import digest_bytes
from libs.common.runtime.clock import Clock
from services.authz.domain.errors import token_too_large, token_unacceptable
from services.authz.domain.model import IssuedToken, LedgerEntry, Minting
from services.authz.domain.ports import KeyRing, Ledger


@dataclass(frozen=True)
class TokenMinter:
    """Mints tokens of one issuer."""

    keys: KeyRing
    ledger: Ledger
    clock: Clock
    issuer: str
    max_token_bytes: int

    def now(self) -> int:
        """Return the current time; times in tokens are whole seconds."""
        return int(self.clock.now().timestamp())

    async def mint(self, authority: Authority, parent: Identity | None = None, *, minting: Minting) -> IssuedToken:
        """Return the token. Raises the verifier's error for claims that a verifier would refuse, before signing."""
        key = await self.keys.active()
        claims = self._claims(authority, parent)
        minted = identity_of(claims, key.kid)
        token = await key.sign(claims)
        if len(token) > self.max_token_bytes:
            raise token_too_large(self.max_token_bytes)
        await self.ledger.record(_entry(minted, minting, digest_bytes(token.encode())))
        return IssuedToken(token, claims)

    async def mint_requested(
        self, authority: Authority, parent: Identity | None = None, *, minting: Minting
    ) -> IssuedToken:
        """Return the token of a client's request. Claims that a verifier would refuse are INVALID_REQUEST here: the
        request is at fault, and no malformed token exists."""
        try:
            return await self.mint(authority, parent, minting=minting)
        except MeshError as error:
            if error.reason is Reason.TOKEN_MALFORMED:
                raise token_unacceptable() from error
            raise

    def _claims(self, authority: Authority, parent: Identity | None) -> Mapping[str, Any]:
        passed_through = {"act": []} if parent is None else descendants_claims(parent)
        return {"iss": self.issuer, "jti": new_id(), "iat": self.now(), **claims_of(authority), **passed_through}


def _entry(minted: Identity, minting: Minting, digest: str) -> LedgerEntry:
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
        tenant=minted.tenant,
        minting=minting,
        digest=digest,
    )
