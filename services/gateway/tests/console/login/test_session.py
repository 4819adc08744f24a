"""Sessions hold a mesh token sealed, for a limited time, and only one that a browser may use."""

from __future__ import annotations

import base64
import secrets
import time
from typing import Any

import jwt
import pytest

from libs.common.errors import MeshError, Reason
from libs.common.sealing import KEY_BYTES, Seal
from services.gateway.console.login.session import (
    MAX_COOKIE_BYTES,
    SESSION_SECONDS,
    SealedCookies,
    new_session,
    open_session,
    seal_session,
)

COOKIES = SealedCookies(Seal([b"k" * KEY_BYTES]))


def token(**claims: Any) -> str:
    given = {"sub": "did:web:example.com:bob", "scope": "approvals:decide a:b", "exp": time.time() + 10**6, **claims}
    present = {name: value for name, value in given.items() if value is not None}
    # The console verifies no signature: the services do, at every call.
    signature, body, _ = jwt.encode(present, "s" * 64, "HS256").split(".")
    header = base64.urlsafe_b64encode(b'{"alg":"RS256","typ":"JWT"}').decode().rstrip("=")
    return f"{header}.{body}.{signature}"


def refusal(made: str) -> Reason:
    with pytest.raises(MeshError) as caught:
        new_session(made)
    return caught.value.reason


def test_a_session_survives_its_cookie_and_shows_no_secret() -> None:
    session = new_session(token())
    assert open_session(COOKIES, seal_session(COOKIES, session)) == session
    assert session.scopes == {"approvals:decide", "a:b"}
    assert session.token not in repr(session)
    assert session.form_token not in repr(session)
    assert session.token not in seal_session(COOKIES, session)


def test_a_session_ends_with_its_token_and_after_an_hour() -> None:
    now = time.time()
    assert new_session(token(exp=now + 60), now).expires == int(now + 60)
    assert new_session(token(), now).expires == int(now + SESSION_SECONDS)
    assert open_session(COOKIES, seal_session(COOKIES, new_session(token(exp=now - 1)))) is None


def test_cookies_that_were_not_sealed_here_are_no_sessions() -> None:
    cookie = seal_session(COOKIES, new_session(token()))
    other = SealedCookies(Seal([b"o" * KEY_BYTES]))
    changed = cookie[:-9] + ("A" if cookie[-9] != "A" else "B") + cookie[-8:]
    login = COOKIES.seal("login", {"token": token(), "form_token": "x", "expires": time.time() + 60})
    for wrong in ("", "A", "ä", "A" * 5000, changed, login, seal_session(other, new_session(token()))):
        assert open_session(COOKIES, wrong) is None


def test_tokens_that_a_browser_cannot_use_are_refused() -> None:
    assert refusal(token(cnf={"jkt": "thumb"})) is Reason.TOKEN_PROOF_INVALID
    assert refusal(token(cnf={"x5t#S256": "thumb"})) is Reason.TOKEN_PROOF_INVALID
    assert refusal(token(exp=None)) is Reason.TOKEN_MALFORMED
    for wrong in ("", "a", "a.b", "a.b.c", token() + "\n", "a" * 20_000):
        assert refusal(wrong) is Reason.TOKEN_MALFORMED
    with pytest.raises(MeshError) as caught:
        seal_session(COOKIES, new_session(token(tools=secrets.token_hex(5000))))
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


def test_a_long_token_of_text_fits_into_a_cookie() -> None:
    grants = [{"tool": f"team{number}.tool", "version": f"^{number}"} for number in range(60)]
    made = token(tools=grants)
    assert len(made) > 3000
    assert len(seal_session(COOKIES, new_session(made))) <= MAX_COOKIE_BYTES
