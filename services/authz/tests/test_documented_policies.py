"""The example policies of the documentation are valid and decide as described."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.annotations import ANNOTATIONS
from services.authz.adapters.cedar.compiler import MAX_POLICIES, compiler_for, read_documents
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.domain.model import Allow, Deny, NeedsApproval, Obligation
from services.authz.tests.adapters.cedar.test_engine import make_request
from services.authz.wiring import POLICIES


@pytest.fixture(scope="module")
def text() -> str:
    return (Path(__file__).parents[3] / "docs" / "policies.md").read_text()


@pytest.fixture(scope="module")
def engine(text: str) -> CedarEngine:
    examples = re.findall(r"```cedar\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 5
    documents = read_documents(POLICIES) | {"examples.cedar": "\n".join(examples)}
    return CedarEngine(compiler_for(POLICIES).compile(documents), Log("authz", level="error"))


def decide(engine: CedarEngine, **given: Any) -> Any:
    return engine.decide(make_request("dev", **{"trust_level": 90, **given}))


def test_a_large_payment_needs_two(engine: CedarEngine) -> None:
    small, large = (
        decide(engine, arguments=arguments, mutation_class="write_reversible", moment_hour=12)
        for arguments in (b'{"amount": 1000}', b'{"amount": 1000.01}')
    )
    assert small.outcome == Allow()
    assert large.outcome == NeedsApproval(("treasury", "board"), 2, "payments-above-a-thousand-need-two")


@pytest.mark.parametrize("arguments", [b'{"amount": "5000"}', b'{"amount": "1"}', b"{}", b'{"amount": [1]}'])
def test_an_amount_that_is_no_number_needs_two(engine: CedarEngine, arguments: bytes) -> None:
    payment = decide(engine, arguments=arguments, mutation_class="write_reversible", moment_hour=12)
    assert payment.outcome == NeedsApproval(("treasury", "board"), 2, "payments-above-a-thousand-need-two")


def test_mail_of_agents_stays_in_the_house(engine: CedarEngine) -> None:
    mail = {"tags": ("mail",), "tier": "agent"}
    assert decide(engine, **mail, arguments=b'{"to": "a@example.com"}').outcome == Allow()
    assert isinstance(decide(engine, **mail, arguments=b'{"to": "a@evil.com"}').outcome, Deny)
    assert decide(engine, tags=("mail",), arguments=b'{"to": "a@evil.com"}').outcome == Allow()


def test_support_reads_without_cards(engine: CedarEngine) -> None:
    verdict = decide(engine, tags=("customers",), groups=("support",))
    assert verdict.obligations == (Obligation("redact_fields", ("/rows/*/card",)), Obligation("cap_rows", ("50",)))
    assert verdict.labels == ("pii",)


def test_at_night_a_person_looks(engine: CedarEngine) -> None:
    night = decide(engine, mutation_class="write_reversible", moment_hour=3, arguments=b"{}")
    assert isinstance(night.outcome, NeedsApproval)
    assert decide(engine, moment_hour=3).outcome == Allow()


def test_a_ban_of_a_subject_covers_all_actors_for_it(engine: CedarEngine) -> None:
    mallory = {"subject": "did:web:example.com:mallory"}
    for acting in ({}, {"tier": "agent", "agent": "did:key:own"}, {"tier": "invocation"}, {"tier": "service"}):
        assert isinstance(decide(engine, **mallory, **acting).outcome, Deny)
    assert decide(engine, tier="agent", agent="did:web:example.com:mallory").outcome == Allow()


def test_every_annotation_is_described(text: str) -> None:
    described = set(re.findall(r"`@(\w+)\(", text))
    assert described >= set(ANNOTATIONS)
    assert f"{MAX_POLICIES:,} policies" in text
