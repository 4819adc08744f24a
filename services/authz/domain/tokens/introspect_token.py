"""IntrospectToken: says whether this mesh accepts a token now."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.errors import MeshError, Reason
from services.authz.domain.model import Introspection
from services.authz.domain.ports import TokenReader

# What may be wrong with a token itself. Any other failure says nothing about the token and is passed on.
ABOUT_THE_TOKEN = frozenset(
    {
        Reason.TOKEN_EXPIRED,
        Reason.TOKEN_SIGNATURE_INVALID,
        Reason.TOKEN_MALFORMED,
        Reason.TOKEN_AUDIENCE_INVALID,
        Reason.TOKEN_REVOKED,
        Reason.AUTHORITY_EXCEEDED,
    }
)


@dataclass(frozen=True)
class IntrospectToken:
    """Reads tokens with the eyes of every service of the mesh."""

    reader: TokenReader

    async def __call__(self, token: str) -> Introspection:
        """Return the claims of a good token, or the code that a call with a bad one would meet."""
        try:
            identity = await self.reader.verify(token)
        except MeshError as error:
            if error.reason not in ABOUT_THE_TOKEN:
                raise
            return Introspection(error_code=error.row.code)
        return Introspection(claims=identity.claims)
