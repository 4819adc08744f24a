"""The file of trusted issuers is read strictly, and all problems are reported at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from libs.common.auth.identity import Grant
from services.authz.adapters.issuers.trusted_issuers import TrustedIssuer, TrustedIssuersError, read_trusted_issuers


def entry(**changes: Any) -> dict[str, Any]:
    """Return the description of a good issuer, with changes."""
    return {
        "issuer": "https://login.example.com",
        "audience": "toolmesh",
        "jwks": "https://login.example.com/keys",
        "algorithms": ["RS256", "ES256"],
        "subject": {"claim": "sub", "did": "did:web:login.example.com:users:"},
        "tenant": {"claim": "org"},
        "groups": {"claim": "groups", "accepted": ["ops"]},
        "grant": {
            "tools": ["arith*@^1", "echo"],
            "scopes": ["tools:call"],
            "trust_level": 20,
            "lifetime_seconds": 600,
            "delegation_depth": 2,
        },
        **changes,
    }


def grant(**changes: Any) -> dict[str, Any]:
    return {"grant": {**entry()["grant"], **changes}}


def read(folder: Path, *entries: Any, document: Any = None) -> tuple[TrustedIssuer, ...]:
    path = folder / "issuers.json"
    path.write_text(json.dumps({"issuers": list(entries)} if document is None else document))
    return read_trusted_issuers(path, max_lifetime=3600)


def test_a_good_file_is_read_whole(tmp_path: Path) -> None:
    (issuer,) = read(tmp_path, entry())
    assert (issuer.issuer, issuer.audience, issuer.algorithms) == (
        *("https://login.example.com", "toolmesh"),
        ("RS256", "ES256"),
    )
    assert (issuer.subject_claim, issuer.subject_did) == ("sub", "did:web:login.example.com:users:")
    assert (issuer.tenant, issuer.tenant_claim) == ("", "org")
    assert (issuer.groups_claim, issuer.groups) == ("groups", frozenset({"ops"}))
    assert issuer.grant.tools == (Grant("arith*", "^1"), Grant("echo"))
    assert (issuer.grant.scopes, issuer.grant.trust_level) == (("tools:call",), 20)
    assert (issuer.grant.lifetime, issuer.grant.depth, issuer.grant.resources) == (600, 2, ())


def test_a_minimal_issuer_is_accepted(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text("{}")
    short = entry(jwks=str(keys), subject={"did": "did:web:x.example:"}, tenant={"value": "acme"})
    del short["groups"]
    (issuer,) = read(tmp_path, short)
    assert (issuer.subject_claim, issuer.tenant, issuer.tenant_claim, issuer.groups) == ("sub", "acme", "", frozenset())


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": ""},
        {"audience": 7},
        {"jwks": "http://login.example.com/keys"},
        {"jwks": "https://user@login.example.com/keys"},
        {"jwks": "/nowhere/keys.json"},
        {"ca": "/nowhere/ca.pem"},
        {"algorithms": []},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": "RS256"},
        {"subject": {"claim": "sub"}},
        {"subject": {"did": "did:web:login.example.com"}},
        {"subject": {"did": "https://login.example.com:"}},
        {"tenant": {"claim": "org", "value": "acme"}},
        {"tenant": {"name": "acme"}},
        {"groups": {"claim": "groups"}},
        {"groups": {"accepted": ["ops"]}},
        {"algorithm": ["RS256"]},
        {"grant": []},
        grant(tools=["ab"]),
        grant(tools=["echo@newest"]),
        grant(tools=["echo@latest"]),
        grant(tools=["Not a tool"]),
        grant(scopes=["A b"]),
        grant(tools=[], scopes=[]),
        grant(trust_level=101),
        grant(trust_level=True),
        grant(lifetime_seconds=3601),
        grant(lifetime_seconds=0),
        grant(delegation_depth=9),
        grant(depth=1),
    ],
)
def test_an_invalid_issuer_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(TrustedIssuersError):
        read(tmp_path, entry(**changes))


@pytest.mark.parametrize(
    "document", [[], {}, {"issuers": []}, {"issuers": {}}, {"issuers": [7]}, {"issuers": [{}], "x": 1}]
)
def test_a_file_without_a_list_of_issuers_is_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(TrustedIssuersError):
        read(tmp_path, document=document)


def test_no_issuer_may_speak_for_anothers_users(tmp_path: Path) -> None:
    other = entry(issuer="https://other.example", subject={"did": "did:web:login.example.com:users:a:"})
    with pytest.raises(TrustedIssuersError):
        read(tmp_path, entry(), other)
    with pytest.raises(TrustedIssuersError):
        read(tmp_path, entry(), entry(subject={"did": "did:web:elsewhere.example:"}))


def test_all_problems_of_the_issuers_file_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(TrustedIssuersError) as caught:
        read(tmp_path, entry(audience="", algorithms=["HS256"], surplus=1), entry(issuer=""))
    problems = str(caught.value)
    assert all(
        place in problems for place in ("issuers[0].audience", "issuers[0].algorithms", "surplus", "issuers[1].issuer")
    )
