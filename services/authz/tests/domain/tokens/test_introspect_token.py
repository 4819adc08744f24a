"""IntrospectToken returns error codes only for reasons that are about the token."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from services.authz.domain.tokens.introspect_token import TOKEN_REASONS, IntrospectToken

CLAIMS = {"sub": "did:web:a", "jti": "1"}


@dataclass
class Reader:
    """A TokenReader with a fixed result or error."""

    fails_with: Reason | None = None

    async def verify(self, token: str) -> Identity:
        if self.fails_with is not None:
            raise MeshError(self.fails_with)
        return Identity("did:web:a", "1", 0.0, claims=CLAIMS)


async def test_a_good_token_is_shown_with_its_claims() -> None:
    found = await IntrospectToken(Reader()).execute("good")
    assert (found.claims, found.error_code) == (CLAIMS, "")


@pytest.mark.parametrize("reason", sorted(TOKEN_REASONS))
async def test_a_bad_token_is_answered_with_the_code_that_a_call_would_meet(reason: Reason) -> None:
    found = await IntrospectToken(Reader(reason)).execute("bad")
    assert (found.claims, found.error_code) == (None, f"E{reason.value}")


async def test_a_failure_that_is_not_the_tokens_is_not_held_against_it() -> None:
    with pytest.raises(MeshError) as caught:
        await IntrospectToken(Reader(Reason.SERVICE_UNAVAILABLE)).execute("unknown")
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
