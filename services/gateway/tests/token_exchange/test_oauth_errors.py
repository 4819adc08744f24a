"""Errors of the token endpoint: what RFC 6749 allows in them."""

from __future__ import annotations

import orjson
import pytest

from libs.common.errors import MeshError, Reason
from services.gateway.token_exchange.oauth_errors import OAuthError, refusal_reply


def test_descriptions_have_the_characters_that_the_standard_allows() -> None:
    error = MeshError(Reason.TOKEN_MALFORMED, message='a "quoted"\\ \n \u00fcnkind text' + "x" * 1000)
    description = orjson.loads(refusal_reply(error, "").body)["error_description"]
    assert not set(description) & set('"\\\n\u00fc')
    assert len(description) <= 500


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_an_error_of_the_standard_that_nothing_stores(reason: Reason) -> None:
    reply = refusal_reply(MeshError(reason), "trace-1")
    answer = orjson.loads(reply.body)
    assert answer["envelope"]["reason"] == reason.name
    assert 400 <= reply.status < 600
    codes = {"invalid_request", "invalid_scope", "invalid_dpop_proof", "temporarily_unavailable", "server_error"}
    assert answer["error"] in codes
    assert (b"cache-control", b"no-store") in reply.headers


def test_a_refused_form_keeps_its_code_and_headers() -> None:
    reply = refusal_reply(OAuthError("invalid_target", "elsewhere", (b"allow", b"POST"), status=405), "")
    assert (reply.status, orjson.loads(reply.body)["error"]) == (405, "invalid_target")
    assert (b"allow", b"POST") in reply.headers
