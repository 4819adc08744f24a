"""IntrospectToken: returns whether this mesh accepts a token now."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.errors import MeshError, Reason
from services.authz.domain.model import Introspection
from services.authz.domain.ports import TokenReader

# Reasons that are about the token itself. Any other failure is raised.
TOKEN_REASONS = frozenset(
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
    """Verifies a token like every service of the mesh."""

    reader: TokenReader

    async def execute(self, token: str) -> Introspection:
        """Return the claims of a valid token, or the error code of an invalid one."""
        try:
            identity = await self.reader.verify(token)
        except MeshError as error:
            if error.reason not in TOKEN_REASONS:
                raise
            return Introspection(error_code=error.row.code)
        return Introspection(claims=identity.claims)
