"""What a token asks of its holder, checked where the holder arrives."""

from __future__ import annotations

import time
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.gateway.transport.dpop_check import DpopCheck, confirmation_of
from services.gateway.transport.reply import refusal
from tests.harness.holder import Holder

HOST, PLACE = b"mesh.example", "https://mesh.example/rpc"


def problem(check: DpopCheck, token: str, *proofs: str, scheme: str = "DPoP", peer: str = "edge") -> str:
    """Return what is wrong with a request; empty for nothing."""
    headers = [
        (b"host", HOST),
        (b"x-forwarded-proto", b"https"),
        (b"authorization", f"{scheme} {token}".encode()),
        *((b"dpop", proof.encode()) for proof in proofs),
    ]
    scope: Any = {"path": "/rpc", "headers": headers, "state": {"peer": peer}}
    error = check.check(scope, dict(headers), token)
    assert error is None or error.reason is Reason.TOKEN_PROOF_INVALID
    return "" if error is None else error.metadata["problem"]


def test_a_bearer_token_and_what_is_no_token_at_all_ask_for_nothing(signer: Any) -> None:
    check = DpopCheck()
    for token in (signer.mint(), signer.mint(cnf={}), "garbage", "not.a.token", "a.b"):
        assert problem(check, token, scheme="Bearer") == ""
        assert problem(check, token, scheme="DPoP") == "confirmation"


def test_a_token_that_is_bound_to_a_key_needs_its_proof_once_for_each_request(signer: Any) -> None:
    check, holder = DpopCheck(), Holder()
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


def test_only_the_edge_says_over_which_scheme_a_caller_came(signer: Any) -> None:
    check, holder = DpopCheck(), Holder()
    token = signer.mint(cnf={"jkt": holder.thumbprint})
    assert problem(check, token, holder.proof(token, PLACE), peer="operator") == ""


@pytest.mark.parametrize("cnf", [{"x5t#S256": "a" * 43}, {"jkt": 7}, {"other": "x"}, "text", []])
def test_what_cannot_be_proved_here_is_refused(signer: Any, cnf: Any) -> None:
    token = signer.mint(cnf=cnf)
    assert confirmation_of(token) == "other"
    assert problem(DpopCheck(), token, scheme="Bearer") == "certificate"


def test_a_refusal_names_the_scheme_that_would_be_accepted() -> None:
    reply = refusal(MeshError(Reason.TOKEN_PROOF_INVALID), "")
    assert reply.status == 401
    assert dict(reply.headers)[b"www-authenticate"].startswith(b"DPoP ")
