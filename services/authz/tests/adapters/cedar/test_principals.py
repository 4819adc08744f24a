"""The principal and subject that policy sees for derived tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from libs.common.auth.identity import Ancestor, Grant, Identity
from libs.common.errors import Reason
from libs.common.testing.clock import ManualClock
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.adapters.cedar.entities import principal_entity, principal_uid
from services.authz.domain.model import Allow, Attenuation, Deny, TokenRequest
from services.authz.tests.adapters.cedar.test_engine import SILENT, make_request
from services.authz.tests.adapters.cedar.test_engine_properties import COMPILER
from services.authz.tests.adapters.cedar.test_slicing import cut
from services.authz.tests.policy_texts import forbid, permit
from services.authz.tests.token_issuer import ALICE, BOT, Issuer, read

ECHO = Attenuation(tools=(Grant("echo"),))
OWN_KEY = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
FEW = ["a", "b"]


@pytest.fixture
def issuer(clock: ManualClock) -> Issuer:
    return Issuer(clock)


@pytest.fixture
async def alice(issuer: Issuer) -> Identity:
    return read(await issuer.issue.execute(TokenRequest(subject=ALICE, tools=(Grant("echo"),))))


def outcome(engine: CedarEngine, caller: Identity) -> Any:
    return engine.decide(structs.replace(make_request(), caller=caller)).outcome


async def test_a_token_of_one_call_is_its_makers(issuer: Issuer, alice: Identity) -> None:
    bot = read(await issuer.delegate.execute(alice, BOT, Attenuation()))
    mine, bots = [read(await issuer.narrow.execute(holder, ECHO)) for holder in (alice, bot)]
    assert principal_uid(mine) == principal_uid(alice) == {"type": "User", "id": ALICE}
    assert principal_uid(bots) == principal_uid(bot) == {"type": "Agent", "id": BOT}


async def test_a_ban_on_a_user_survives_narrowing_and_nothing_meant_for_agents_is_gained(
    issuer: Issuer, alice: Identity
) -> None:
    narrowed = read(await issuer.narrow.execute(alice, ECHO))
    banned = forbid("banned").replace("(principal,", f'(principal == User::"{ALICE}",')
    agents = permit("agents").replace("(principal,", "(principal is Agent,")
    for engine in (CedarEngine(cut(permit("all"), banned), SILENT), CedarEngine(cut(agents), SILENT)):
        assert outcome(engine, alice) == outcome(engine, narrowed) == Deny(Reason.PERMISSION_DENIED)


async def test_a_ban_of_a_subject_survives_delegation_to_its_own_key(issuer: Issuer, alice: Identity) -> None:
    engine = CedarEngine(cut(permit("all"), forbid("banned", f'principal.subject == "{ALICE}"')), SILENT)
    own = read(await issuer.delegate.execute(alice, OWN_KEY, Attenuation()))
    for caller in (
        alice,
        own,
        read(await issuer.narrow.execute(own, ECHO)),
        read(await issuer.narrow.execute(alice, ECHO)),
    ):
        assert outcome(engine, caller) == Deny(Reason.PERMISSION_DENIED)
    other = read(await issuer.issue.execute(TokenRequest(subject=BOT, tools=(Grant("echo"),))))
    assert outcome(engine, read(await issuer.delegate.execute(other, OWN_KEY, Attenuation()))) == Allow()


@pytest.mark.parametrize("tier", ["user", "agent", "service"])
def test_every_kind_of_principal_has_a_subject(tier: str) -> None:
    assert principal_entity(replace(make_request().caller, tier=tier))["attrs"]["subject"] == "did:web:a"


def narrowed(holder: Identity) -> Identity:
    """What its holder may make of a token for one call, with nothing of it left out."""
    parent = Ancestor(holder.actor, holder.token_id, "k", 0.0, holder.authority)
    return replace(holder, tier="invocation", token_id="narrowed", depth=0, lineage=(*holder.lineage, parent))


@st.composite
def holders(draw: Any) -> Identity:
    tier = draw(st.sampled_from(["user", "agent", "service"]))
    agent = draw(st.sampled_from(FEW)) if tier == "agent" else ""
    groups = tuple(draw(st.lists(st.sampled_from(FEW), unique=True)))
    return Identity(draw(st.sampled_from(FEW)), "t", 0.0, tier=tier, agent=agent, groups=groups, depth=1)


@st.composite
def policies(draw: Any) -> str:
    """Generate policies about the type, UID and subject of callers."""
    written = []
    for index in range(draw(st.integers(1, 6))):
        keyword, effect = draw(st.sampled_from([("permit", "allow"), ("permit", "allow"), ("forbid", "deny")]))
        kind, name = draw(st.sampled_from(["User", "Agent", "Service"])), draw(st.sampled_from(FEW))
        principal = draw(st.sampled_from(["principal", f"principal is {kind}", f'principal == {kind}::"{name}"']))
        condition = draw(
            st.sampled_from(
                [
                    "true",
                    f'principal.subject == "{name}"',
                    f"!(principal is {kind})",
                    f'principal.groups.contains("{name}")',
                    f'principal == {kind}::"{name}" || principal.subject == "{name}"',
                ]
            )
        )
        action = 'action == Action::"invoke"' if keyword == "forbid" else "action"
        head = f'@id("p{index}") @effect("{effect}") @reason("r")'
        written.append(f"{head} {keyword} ({principal}, {action}, resource) when {{ {condition} }};")
    return "\n".join(written)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(), st.lists(holders(), min_size=4, max_size=4))
def test_whatever_is_denied_to_a_holder_is_denied_to_its_own_narrowed_token(text: str, asked: list[Identity]) -> None:
    engine = CedarEngine(COMPILER.compile({"a.cedar": text}), SILENT)
    for holder in asked:
        assert outcome(engine, narrowed(holder)) == outcome(engine, holder)
