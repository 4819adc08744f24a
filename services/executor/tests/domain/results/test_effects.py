"""What a run changed, against what its tool declares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.domain.results.effects import find_undeclared, merge_effects, quarantine_reason
from services.executor.domain.tool import Effect, Mutation, Tool
from services.executor.tests.samples import a_tool, a_write_tool

DECLARED = (Effect("file:data/reports/*", "create"), Effect("orders/{id}", "update"))


def a_writer(*declared: Effect) -> Tool:
    return a_write_tool(effects=declared or DECLARED)


def seen(resource: str, operation: str = "create") -> Effect:
    return Effect(resource, operation, observed=True)


def told(resource: str, operation: str = "create") -> Effect:
    return Effect(resource, operation)


def test_no_effects_break_no_word() -> None:
    assert find_undeclared(a_tool(), ()) == []
    assert find_undeclared(a_writer(), ()) == []


@pytest.mark.parametrize("effect", [seen("file:data/a"), told("orders/1", "update"), seen("file:data/reports/a")])
def test_a_tool_that_only_reads_may_change_nothing(effect: Effect) -> None:
    # Even if its manifest declared something: the class is what callers were promised.
    assert find_undeclared(a_tool(effects=DECLARED), [effect]) == [effect]


@pytest.mark.parametrize("mutation", [Mutation.WRITE_REVERSIBLE, Mutation.WRITE_IRREVERSIBLE])
@pytest.mark.parametrize("effect", [seen("file:data/reports/a.txt"), told("orders/17", "update")])
def test_what_is_declared_may_happen(mutation: Mutation, effect: Effect) -> None:
    assert find_undeclared(a_write_tool(mutation=mutation, effects=DECLARED), [effect]) == []


@pytest.mark.parametrize(
    "effect",
    [
        seen("file:data/reports/a.txt", "delete"),
        seen("file:data/other/a.txt"),
        seen("file:data/reports"),
        told("orders/17", "create"),
        told("invoices/17", "update"),
        seen("orders/17", "delete"),
    ],
)
def test_what_is_not_declared_breaks_the_word(effect: Effect) -> None:
    assert find_undeclared(a_writer(), [effect]) == [effect]


def test_a_writer_that_declares_nothing_may_change_nothing() -> None:
    assert find_undeclared(a_write_tool(effects=()), [seen("file:data/a")]) == [seen("file:data/a")]


def test_a_file_that_was_reported_must_have_been_seen() -> None:
    claimed = told("file:data/reports/a.txt")
    assert find_undeclared(a_writer(), [claimed]) == [claimed]
    assert find_undeclared(a_writer(), [claimed, seen("file:data/reports/a.txt")]) == []


def test_how_a_file_changed_is_the_sandboxs_word() -> None:
    both = (Effect("file:data/*", "create"), Effect("file:data/*", "update"))
    assert find_undeclared(a_writer(*both), [told("file:data/a", "update"), seen("file:data/a", "create")]) == []


def test_every_broken_word_is_named_once() -> None:
    effects = [seen("file:x"), told("file:x"), seen("file:y"), seen("file:x"), seen("file:data/reports/ok")]
    assert find_undeclared(a_writer(), effects) == [seen("file:x"), seen("file:y")]


def test_what_was_seen_stands_for_what_was_reported() -> None:
    effects = [told("file:a"), seen("file:a"), told("file:a", "delete"), told("orders/1"), told("orders/1")]
    assert merge_effects(effects) == (seen("file:a"), told("file:a", "delete"), told("orders/1"))


@pytest.mark.parametrize("text", ["*", "{", "{}", "{a}{b}", "a{b", "{a/b}"])
def test_odd_patterns_match_or_do_not_and_never_fail(text: str) -> None:
    assert find_undeclared(a_writer(Effect(text, "create")), [told("orders/1")]) in ([], [told("orders/1")])


def test_a_violation_counts_kinds_and_names_no_resource() -> None:
    broken = [seen("file:data/alice@example.com"), seen("file:data/b"), told("orders/4711", "delete"), told("\u0000?")]
    text = quarantine_reason(broken, "inv-1")
    assert "create file (2)" in text
    assert "delete orders (1)" in text
    assert [secret for secret in ("alice", "4711", "\u0000") if secret in text] == []
    assert len(quarantine_reason([told(f"kind{n}:x", "create") for n in range(500)], "inv-1")) < 1000


EFFECTS = st.builds(
    Effect,
    st.sampled_from(["file:data/reports/a", "file:data/b", "orders/1", "orders/2", "mail/3"]),
    st.sampled_from(["create", "update", "delete"]),
    st.booleans(),
)


@given(st.lists(EFFECTS, max_size=8))
def test_a_declaration_that_covers_all_observed_effects_is_kept(effects: list[Effect]) -> None:
    declared = tuple(Effect(effect.resource, effect.operation) for effect in effects)
    broken = find_undeclared(a_writer(*declared), effects) if declared else []
    assert all(not effect.observed and effect.resource.startswith("file:") for effect in broken)


@given(st.lists(EFFECTS, max_size=8), EFFECTS)
def test_a_further_effect_never_excuses_another_that_was_seen(effects: list[Effect], more: Effect) -> None:
    def broken(changes: Any) -> set[Effect]:
        return {effect for effect in find_undeclared(a_writer(), changes) if effect.observed}

    assert broken(effects) <= broken([*effects, more])
