"""DelegateToken and NarrowToken derive subsets of the parent or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libs.common.auth.claims import MAX_CONSTRAINTS
from libs.common.auth.identity import ArgumentConstraint, Budget, Grant, Identity
from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.authz.domain.model import Attenuation, TokenRequest
from services.authz.tests.token_issuer import ALICE, BOT, Issuer, KnownDids, read

OTHER = "did:web:toolmesh.local:agents:other"
ASKED = TokenRequest(
    subject=ALICE,
    tools=(Grant("arith*", "^1"), Grant("echo")),
    scopes=("a", "b"),
    lifetime=100,
    tenant="acme",
    groups=("ops", "dev"),
    trust_level=50,
    resources=("file:/srv/*",),
    argument_constraints=(ArgumentConstraint("echo", b'{"maxProperties":1}'),),
    budget=Budget(calls=10),
    depth=2,
)


@pytest.fixture
def issuer(clock: ManualClock) -> Issuer:
    return Issuer(clock)


@pytest.fixture
async def user(issuer: Issuer) -> Identity:
    return read(await issuer.issue.execute(ASKED))


async def refused(call: Any, reason: Reason = Reason.AUTHORITY_EXCEEDED) -> list[str]:
    with pytest.raises(MeshError) as caught:
        await call
    assert caught.value.reason is reason
    return [violation.path for violation in caught.value.violations]


async def test_unset_claims_are_inherited_except_scopes(issuer: Issuer, user: Identity) -> None:
    agent = read(await issuer.delegate.execute(user, BOT, Attenuation()))
    assert (agent.subject, agent.agent, agent.tier, agent.depth) == (ALICE, BOT, "agent", 1)
    assert agent.scopes == frozenset()
    for name in (
        "tools",
        "resources",
        "argument_constraints",
        "budget",
        "expires_at",
        "tenant",
        "trust_level",
        "groups",
    ):
        assert getattr(agent, name) == getattr(user, name)
    assert agent.chain == ((ALICE, user.token_id),)
    assert [(a.actor, a.token_id, a.key_id, a.authority) for a in agent.lineage] == [
        (ALICE, user.token_id, "plain", user.authority)
    ]


async def test_a_chain_of_three_tiers(issuer: Issuer, user: Identity, clock: ManualClock) -> None:
    agent = read(
        await issuer.delegate.execute(user, BOT, Attenuation(scopes=("a",), budget=Budget(calls=5, cost_micros=7)))
    )
    clock.advance(10)
    call = read(await issuer.narrow.execute(agent, Attenuation(tools=(Grant("echo", "1.0.0"),), lifetime=5)))
    assert (call.tier, call.agent, call.depth, call.tools) == ("invocation", BOT, 0, (Grant("echo", "1.0.0"),))
    assert call.budget == Budget(calls=5, cost_micros=7)
    assert call.expires_at == call.not_before + 5 == user.not_before + 15
    assert [actor for actor, _ in call.chain] == [ALICE, BOT]
    assert call.root_token_id == user.token_id
    entries = issuer.ledger.entries
    assert [(e.agent, e.parent_id, e.root_id) for e in entries] == [
        ("", "", user.token_id),
        (BOT, user.token_id, user.token_id),
        (BOT, agent.token_id, user.token_id),
    ]


async def test_every_dimension_that_is_exceeded_is_named(issuer: Issuer, user: Identity) -> None:
    asked = Attenuation(
        tools=(Grant("echo"), Grant("*")),
        scopes=("c",),
        resources=("*",),
        budget=Budget(calls=11),
        lifetime=101,
        audiences=("elsewhere",),
        groups=("root",),
        trust_level=51,
    )
    paths = await refused(issuer.delegate.execute(user, BOT, asked, depth=2))
    assert sorted(paths) == [
        *("audiences", "budget.calls", "delegation_depth", "groups", "lifetime", "resource_constraints[0]"),
        *("scopes", "tools[1].tool", "trust_level"),
    ]
    assert len(issuer.ledger.entries) == 1


async def test_depth_runs_out_and_nothing_comes_of_an_invocation(issuer: Issuer, user: Identity) -> None:
    one = read(await issuer.delegate.execute(user, BOT, Attenuation()))
    two = read(await issuer.delegate.execute(one, OTHER, Attenuation()))
    assert (two.depth, two.agent) == (0, OTHER)
    echo = Attenuation(tools=(Grant("echo"),))
    assert await refused(issuer.delegate.execute(two, BOT, Attenuation())) == ["delegation_depth"]
    assert await refused(issuer.narrow.execute(two, echo)) == ["delegation_depth"]
    last = read(await issuer.narrow.execute(one, echo))
    assert "tier" in await refused(issuer.narrow.execute(last, echo))
    assert "tier" in await refused(issuer.delegate.execute(last, BOT, Attenuation()))


async def test_constraints_are_added_and_never_taken_away(issuer: Issuer, user: Identity) -> None:
    added = ArgumentConstraint("echo", b'{ "required": ["text"] }')
    agent = read(await issuer.delegate.execute(user, BOT, Attenuation(argument_constraints=(added, added))))
    assert [c.schema for c in agent.argument_constraints] == [b'{"maxProperties":1}', b'{"required":["text"]}']


async def test_a_bound_parent_has_bound_children_only(issuer: Issuer) -> None:
    proof, other = "jkt:" + "a" * 43, "x5t#S256:" + "b" * 43
    bound = read(await issuer.issue.execute(TokenRequest(subject=ALICE, scopes=("a",), confirmation=proof)))
    assert await refused(issuer.delegate.execute(bound, BOT, Attenuation(scopes=("a",)))) == ["confirmation"]
    assert (
        read(await issuer.delegate.execute(bound, BOT, Attenuation(scopes=("a",), confirmation=other))).confirmation
        == other
    )


async def test_an_agents_own_key_binds_its_token(clock: ManualClock) -> None:
    issuer = Issuer(clock, dids=KnownDids(thumbprints=("k" * 43, "l" * 43)))
    user = read(await issuer.issue.execute(ASKED))
    assert (
        read(await issuer.delegate.execute(user, BOT, Attenuation(), bind_to_agent_key=True)).confirmation
        == "jkt:" + "k" * 43
    )
    both = Attenuation(confirmation="jkt:" + "a" * 43)
    paths = await refused(issuer.delegate.execute(user, BOT, both, bind_to_agent_key=True), Reason.INVALID_REQUEST)
    assert paths == ["part.confirmation"]


async def test_binding_needs_a_key_of_the_agent(issuer: Issuer, user: Identity) -> None:
    await refused(issuer.delegate.execute(user, BOT, Attenuation(), bind_to_agent_key=True), Reason.DID_NOT_FOUND)


async def test_an_unresolvable_agent_gets_no_token(clock: ManualClock) -> None:
    issuer = Issuer(clock, dids=KnownDids(unknown=(BOT,)))
    user = read(await issuer.issue.execute(ASKED))
    await refused(issuer.delegate.execute(user, BOT, Attenuation()), Reason.DID_NOT_FOUND)
    assert len(issuer.ledger.entries) == 1


@pytest.mark.parametrize(
    "tools", [(), (Grant("*"),), (Grant("arith*"),), (Grant("ab"),), (Grant("echo"), Grant("echo"))]
)
async def test_narrowing_names_exactly_one_tool(issuer: Issuer, user: Identity, tools: tuple[Grant, ...]) -> None:
    assert await refused(issuer.narrow.execute(user, Attenuation(tools=tools)), Reason.INVALID_REQUEST) == [
        "part.tools"
    ]


async def test_an_invalid_attenuation_is_an_invalid_request(issuer: Issuer, user: Identity) -> None:
    asked = Attenuation(tools=(Grant("ab"), Grant("echo", "latest")), lifetime=0.5, audiences=("",))
    assert await refused(issuer.delegate.execute(user, BOT, asked), Reason.INVALID_REQUEST) == [
        *("part.lifetime", "part.audiences[0]", "part.tools[0].tool", "part.tools[1].version_constraint")
    ]
    scopes = read(await issuer.issue.execute(TokenRequest(subject=ALICE, scopes=("a",))))
    assert await refused(issuer.delegate.execute(scopes, BOT, Attenuation()), Reason.INVALID_REQUEST) == ["part.tools"]


async def test_nothing_comes_of_a_token_whose_time_is_over(issuer: Issuer, user: Identity, clock: ManualClock) -> None:
    clock.advance(100)
    await refused(issuer.delegate.execute(user, BOT, Attenuation()), Reason.TOKEN_EXPIRED)


async def test_a_chain_that_no_longer_fits_into_a_token_ends(issuer: Issuer) -> None:
    long = TokenRequest(subject=ALICE, tools=tuple(Grant(f"a{'b' * 200}{n}") for n in range(40)), depth=8)
    holder = read(await issuer.issue.execute(long))
    assert await refused(issuer.delegate.execute(holder, BOT, Attenuation(), depth=7), Reason.INVALID_REQUEST) == [
        "tools"
    ]


async def derived(issuer: Issuer, way: str, holder: Identity, **part: Any) -> Identity:
    """Delegate or narrow."""
    asked = Attenuation(tools=(Grant("echo"),), **part)
    return read(
        await (issuer.narrow.execute(holder, asked) if way == "narrow" else issuer.delegate.execute(holder, BOT, asked))
    )


@pytest.mark.parametrize("way", ["delegate", "narrow"])
async def test_a_constraint_that_cannot_be_carried_is_an_invalid_request(
    issuer: Issuer, user: Identity, way: str
) -> None:
    added = (ArgumentConstraint("echo", b"{}"), ArgumentConstraint("Pay", b"{}"), ArgumentConstraint("echo", b"["))
    paths = await refused(derived(issuer, way, user, argument_constraints=added), Reason.INVALID_REQUEST)
    assert paths == ["part.argument_constraints[1].tool", "part.argument_constraints[2]"]
    assert len(issuer.ledger.entries) == 1


@pytest.mark.parametrize("way", ["delegate", "narrow"])
async def test_constraints_count_together_with_those_of_the_parent(issuer: Issuer, user: Identity, way: str) -> None:
    many = tuple(ArgumentConstraint("echo", b'{"minProperties":%d}' % n) for n in range(MAX_CONSTRAINTS))
    await derived(issuer, way, user, argument_constraints=(*many[1:], *user.argument_constraints))
    paths = await refused(derived(issuer, way, user, argument_constraints=many), Reason.INVALID_REQUEST)
    assert paths == ["part.argument_constraints"]


async def test_nothing_is_derived_from_a_token_with_an_unbounded_constraint(issuer: Issuer, user: Identity) -> None:
    """An earlier issuer minted it."""
    look_around = ArgumentConstraint("echo", b'{"pattern":"^(?=(a+)+$)(a+)+b$"}')
    parent = replace(user, argument_constraints=(look_around,))
    derived = issuer.delegate.execute(parent, BOT, Attenuation())
    assert await refused(derived, Reason.INVALID_REQUEST) == ["part.argument_constraints"]
