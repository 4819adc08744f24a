"""Claims: what is written is what is read, and what a child carries tells of everyone before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libs.common.auth.authority import ArgumentConstraint, Authority, Budget, Grant
from libs.common.auth.claims import authority_of, claims_of, descendants_claims, identity_of
from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason

RICH = Authority(
    subject="did:web:a",
    tier="user",
    tools=(Grant("arith*", "^1"), Grant("acme.*")),
    scopes=frozenset({"a", "b"}),
    resources=("file:/srv/*",),
    argument_constraints=(ArgumentConstraint("*", b'{"maxProperties":1}'),),
    budget=Budget(calls=0, running_ms=5),
    depth=3,
    audiences=("toolmesh", "other"),
    not_before=100.0,
    expires_at=200.0,
    tenant="acme",
    trust_level=50,
    groups=("ops",),
    session_id="s1",
    confirmation="x5t#S256:" + "a" * 43,
)
PLAIN = Authority(subject="did:web:a", tier="user", audiences=("toolmesh",), expires_at=9.0)


def signed(authority: Authority, **more: Any) -> dict[str, Any]:
    claims = {"iss": "i", "jti": "t1", "iat": 100, "act": [], **claims_of(authority), **more}
    return json.loads(json.dumps(claims))  # type: ignore[no-any-return]


@pytest.mark.parametrize("authority", [RICH, PLAIN])
def test_what_is_written_is_what_is_read(authority: Authority) -> None:
    assert authority_of(signed(authority)) == authority
    assert identity_of(signed(authority), "k1").authority == authority


def test_what_means_nothing_is_not_written() -> None:
    assert claims_of(PLAIN).keys().isdisjoint({"agent", "res", "args", "budget", "session", "cnf"})


def test_a_child_tells_of_everyone_before_it() -> None:
    parent = identity_of(signed(RICH), "k1")
    child = {**claims_of(RICH), "tier": "agent", "agent": "did:web:bot", "depth": 2, **descendants_claims(parent)}
    read = identity_of({**child, "jti": "t2", "iat": 101}, "k2")
    assert read.chain == (("did:web:a", "t1"),)
    (ancestor,) = read.lineage
    assert (ancestor.actor, ancestor.token_id, ancestor.key_id, ancestor.issued_at) == ("did:web:a", "t1", "k1", 100)
    assert ancestor.authority == RICH
    assert (read.key_id, read.root_token_id, read.actor) == ("k2", "t1", "did:web:bot")
    grand = {**child, "depth": 1, **descendants_claims(read), "jti": "t3", "iat": 102}
    assert [a.token_id for a in identity_of(grand).lineage] == ["t1", "t2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"tools": [{"tool": "a"}] * 257},
        {"tools": [{"tool": "a", "version": "newest"}]},
        {"tools": [{"tool": "a?"}]},
        {"tools": [{}]},
        {"tools": {"tool": "a"}},
        {"scope": " ".join(f"s{n}" for n in range(65))},
        {"scope": "A"},
        {"scope": ["a"]},
        {"groups": ["g"] * 65},
        {"res": [""]},
        {"res": ["x" * 513]},
        {"args": [{"tool": "*", "schema": True}]},
        {"args": [{"tool": "*", "schema": {}}] * 33},
        {"budget": {"calls": -1}},
        {"budget": {"calls": True}},
        {"budget": {"wishes": 3}},
        {"budget": [1]},
        {"depth": 9},
        {"depth": 1.5},
        {"aud": []},
        {"aud": ["x"] * 9},
        {"exp": float("inf")},
        {"exp": -1},
        {"nbf": "now"},
        {"iat": None},
        {"tenant": 7},
        {"tenant": "a\0b"},
        {"groups": ["a\nb"]},
        {"trust": -1},
        {"session": "s" * 129},
        {"cnf": {"jkt": "short"}},
        {"cnf": {"jkt": "a" * 43, "x5t#S256": "a" * 43}},
        {"cnf": "jkt"},
        {"agent": "bot"},
        {"agent": "did:web:bot"},
        {"act": [{"sub": "did:web:a", "jti": "t0"}]},
        {"line": [{}]},
        {"line": "x"},
        {"jti": ""},
        {"jti": "x" * 129},
    ],
)
def test_a_claim_beyond_its_bounds_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(MeshError) as caught:
        identity_of({**signed(RICH), **changes})
    assert caught.value.reason is Reason.TOKEN_MALFORMED


def test_an_identity_without_a_chain_is_its_own_root() -> None:
    assert Identity("did:web:a", "t", 0.0).root_token_id == "t"
