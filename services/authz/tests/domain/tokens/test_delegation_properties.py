"""Property tests: no chain of delegations gains authority."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from libs.common.auth.claims import identity_of
from libs.common.auth.constraints import ConstraintChecker
from libs.common.auth.coverage import not_covered
from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.authz.domain.model import Attenuation
from services.authz.tests.request_generator import Call, RequestGenerator
from services.authz.tests.token_issuer import BOT, Issuer, read

T = TypeVar("T")
SATISFIES = ConstraintChecker()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the coroutine waited")


def derived(
    issuer: Issuer, holder: Identity, attenuation: Attenuation, depth: int | None, *, narrow: bool
) -> Identity | None:
    """Derive a token with the production code; None if it is refused."""
    try:
        if narrow:
            return read(run(issuer.narrow.execute(holder, attenuation)))
        return read(run(issuer.delegate.execute(holder, BOT, attenuation, depth=depth)))
    except MeshError as refused:
        if refused.reason not in (Reason.AUTHORITY_EXCEEDED, Reason.TOKEN_EXPIRED):
            raise
        return None


def chain_of(generator: RequestGenerator) -> list[Identity]:
    """Issue a token and derive up to seven tokens from it while time passes."""
    clock = ManualClock()
    issuer = Issuer(clock)
    holders = [read(run(issuer.issue.execute(generator.root())))]
    for _ in range(generator.below(8)):
        clock.advance(generator.below(60) / 10)
        narrow = generator.chance(0.15)
        attenuation = generator.attenuation(holders[-1], narrow=narrow)
        made = derived(issuer, holders[-1], attenuation, generator.depth(holders[-1]), narrow=narrow)
        if made is not None:
            holders.append(made)
    return holders


def allows(holder: Identity, call: Call, start: float) -> bool:
    """Return whether a token covers a call at its time."""
    time = start + call.offset
    return holder.not_before <= time < holder.expires_at and not not_covered(
        *(holder, call.tool, call.version),
        arguments=call.arguments,
        resources=call.resources,
        closed_world=call.closed_world,
        satisfies=SATISFIES,
    )


def no_more_than(child: int | None, root: int | None) -> bool:
    return root is None or (child is not None and child <= root)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_a_derived_token_never_covers_a_call_that_its_root_does_not(seed: int) -> None:
    generator = RequestGenerator(Random(seed))
    origin, *holders = chain_of(generator)
    event(f"passed on {len(holders)} times")
    for holder in holders:
        for call in generator.calls(holder):
            if allows(holder, call, origin.not_before):
                event("a derived token allows a call")
                assert allows(origin, call, origin.not_before)
        assert holder.scopes <= origin.scopes
        assert set(holder.groups) <= set(origin.groups)
        assert set(holder.audiences) <= set(origin.audiences)
        assert holder.trust_level <= origin.trust_level
        assert (holder.subject, holder.tenant) == (origin.subject, origin.tenant)
        assert origin.not_before <= holder.not_before
        assert holder.expires_at <= origin.expires_at
        assert no_more_than(holder.budget.calls, origin.budget.calls)
        assert no_more_than(holder.budget.cost_micros, origin.budget.cost_micros)
        assert no_more_than(holder.budget.running_ms, origin.budget.running_ms)
        assert holder.depth < origin.depth
        assert origin.session_id in ("", holder.session_id)
        assert bool(holder.confirmation) or not origin.confirmation
        assert holder.root_token_id == origin.token_id


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_a_chain_that_exceeds_an_ancestor_is_refused_on_use(seed: int) -> None:
    generator = RequestGenerator(Random(seed))
    holders = chain_of(generator)
    claims = holders[-1].claims
    if not claims.get("line"):
        return
    index = generator.below(len(claims["line"]))
    older = claims["line"][index]
    grown: dict[str, Any] = {
        "exp": older["exp"] + 1,
        "nbf": older["nbf"] - 1,
        "scope": "r w x y",
        "trust": 100,
        "depth": 8,
        "tenant": "elsewhere",
        "tier": "user",
        "aud": ["toolmesh", "other", "third"],
        "sub": "did:web:toolmesh.local:users:eve",
    }
    for name, value in grown.items():
        line = [dict(entry) for entry in claims["line"]]
        spoiled = {**claims, "line": line}
        younger = line[index + 1] if index + 1 < len(line) else spoiled
        younger[name] = value
        with pytest.raises(MeshError) as caught:
            identity_of(spoiled, "plain")
        # A changed subject in the middle of a chain also contradicts the `act` claim.
        assert caught.value.reason in (Reason.AUTHORITY_EXCEEDED, Reason.TOKEN_MALFORMED)
        if younger is spoiled:
            assert caught.value.reason is Reason.AUTHORITY_EXCEEDED
