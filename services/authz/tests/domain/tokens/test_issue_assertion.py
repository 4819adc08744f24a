"""IssueAssertion: who it is about, for how long, and for whom."""

from __future__ import annotations

import json

import pytest

from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.authz.domain.tokens.issue_assertion import LIFETIME, IssueAssertion
from services.authz.tests.token_issuer import ALICE, BOT, PlainRing

SERVER = "https://login.example.com/token"
HELPER = "did:web:toolmesh.local:agents:helper"


@pytest.fixture
def issue(clock: ManualClock) -> IssueAssertion:
    return IssueAssertion(PlainRing(), clock, "https://issuer.test", "toolmesh")  # type: ignore[arg-type]


def seconds(clock: ManualClock) -> int:
    return int(clock.now().timestamp())


async def test_it_says_who_the_caller_is_and_not_what_it_may_do(issue: IssueAssertion, clock: ManualClock) -> None:
    now = seconds(clock)
    chain = ((ALICE, "one"), (BOT, "two"))
    caller = Identity(ALICE, "three", now + 600, agent=HELPER, tenant="acme", scopes=frozenset({"all"}), chain=chain)
    claims = json.loads(await issue.execute(caller, SERVER))
    assert claims.pop("jti")
    assert claims == {
        "iss": "https://issuer.test",
        "sub": ALICE,
        "aud": SERVER,
        "iat": now,
        "exp": now + LIFETIME,
        "tenant": "acme",
        "act": {"sub": HELPER, "act": {"sub": BOT}},
    }


async def test_it_ends_no_later_than_the_token(issue: IssueAssertion, clock: ManualClock) -> None:
    now = seconds(clock)
    claims = json.loads(await issue.execute(Identity(ALICE, "one", now + 7.9), SERVER))
    assert claims["exp"] == now + 7
    assert "act" not in claims
    with pytest.raises(MeshError) as caught:
        await issue.execute(Identity(ALICE, "one", now + 0.5), SERVER)
    assert caught.value.reason is Reason.TOKEN_EXPIRED


@pytest.mark.parametrize("audience", ["toolmesh", "https://issuer.test"])
async def test_the_mesh_is_no_audience(issue: IssueAssertion, clock: ManualClock, audience: str) -> None:
    with pytest.raises(MeshError) as caught:
        await issue.execute(Identity(ALICE, "one", seconds(clock) + 60), audience)
    assert caught.value.reason is Reason.INVALID_REQUEST
