"""What a token asks of its holder, checked where the holder arrives."""

from __future__ import annotations

import time
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.gateway.transport.reply import refusal
from services.gateway.transport.request.dpop_check import DpopCheck, holder_of
from tests.harness.clients.holder import Holder

PLACE, ORIGINS = "https://mesh.example/rpc", ("https://mesh.example:443",)


def problem(check: DpopCheck, token: str, *proofs: str, scheme: str = "DPoP", host: bytes = b"mesh.example") -> str:
    """Return what is wrong with a request; empty for nothing."""
    headers = [
        (b"host", host),
        (b"x-forwarded-proto", b"https"),
        (b"authorization", f"{scheme} {token}".encode()),
        *((b"dpop", proof.encode()) for proof in proofs),
    ]
    scope: Any = {"method": "POST", "path": "/rpc", "headers": headers, "state": {"peer": "edge"}}
    error = check.check(scope, dict(headers), token)
    assert error is None or error.reason is Reason.TOKEN_PROOF_INVALID
    return "" if error is None else error.metadata["problem"]


def test_a_bearer_token_and_what_is_no_token_at_all_ask_for_nothing(signer: Any) -> None:
    check = DpopCheck(ORIGINS)
    for token in (signer.mint(), signer.mint(cnf={}), "garbage", "not.a.token", "a.b"):
        assert problem(check, token, scheme="Bearer") == ""
        assert problem(check, token, scheme="DPoP") == "confirmation"


def test_a_token_that_is_bound_to_a_key_needs_its_proof_once_for_each_request(signer: Any) -> None:
    check, holder = DpopCheck(ORIGINS), Holder()
    token = signer.mint(cnf={"jkt": holder.thumbprint})
    for scheme in ("Bearer", "DPoP"):
        assert problem(check, token, scheme=scheme) == "missing"
        good = holder.proof(token, PLACE)
        assert problem(check, token, good, scheme=scheme) == ""
        assert problem(check, token, good, scheme=scheme) == "replay"
    assert problem(check, token, holder.proof(token, PLACE), holder.proof(token, PLACE)) == "several"
    assert problem(check, token, Holder().proof(token, PLACE)) == "key"
    assert problem(check, token, holder.proof(token, "http://mesh.example/rpc")) == "htu"
    assert problem(check, token, holder.proof(token, "https://other.example/rpc")) == "htu"
    assert problem(check, token, holder.proof(token, PLACE, iat=int(time.time()) - 600)) == "iat"


def test_a_proof_must_name_an_origin_of_the_mesh_whatever_host_the_request_names(signer: Any) -> None:
    check, holder = DpopCheck(ORIGINS), Holder()
    token = signer.mint(cnf={"jkt": holder.thumbprint})
    assert problem(check, token, holder.proof(token, "https://evil.example/rpc"), host=b"evil.example") == "htu"
    assert problem(check, token, holder.proof(token, PLACE), host=b"internal:8443") == ""
    assert problem(DpopCheck(()), token, holder.proof(token, PLACE)) == "htu"


@pytest.mark.parametrize("cnf", [{"x5t#S256": "a" * 43}, {"jkt": 7}, {"other": "x"}, "text", []])
def test_what_cannot_be_proved_here_is_refused(signer: Any, cnf: Any) -> None:
    token = signer.mint(cnf=cnf)
    assert holder_of(token).confirmation == "other"
    assert problem(DpopCheck(ORIGINS), token, scheme="Bearer") == "certificate"


def test_a_refusal_names_the_scheme_that_would_be_accepted() -> None:
    reply = refusal(MeshError(Reason.TOKEN_PROOF_INVALID), "")
    assert reply.status == 401
    assert dict(reply.headers)[b"www-authenticate"].startswith(b"DPoP ")
