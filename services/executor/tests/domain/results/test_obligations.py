"""What a decision binds the executor to, by itself and within a call."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse
from services.executor.convert.invocation import envelope_of, result_of
from services.executor.domain.model import Obligation
from services.executor.domain.results.obligations import apply_obligations, unmet_kinds
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_decision, a_request, a_tool

ROWS = {"rows": [{"id": 1, "card": "a", "tags": [1, 2, 3]}, {"id": 2, "card": "b"}, {"id": 3}], "next": {"a/b": "x"}}


def redact(*pointers: str) -> Obligation:
    return Obligation("redact_fields", pointers)


@pytest.mark.parametrize(
    ("pointer", "expected", "changed"),
    [
        ("/next", {"rows": ROWS["rows"]}, ("/next",)),
        ("/next/a~1b", {"rows": ROWS["rows"], "next": {}}, ("/next/a~1b",)),
        (
            "/rows/*/card",
            {"rows": [{"id": 1, "tags": [1, 2, 3]}, {"id": 2}, {"id": 3}], "next": {"a/b": "x"}},
            ("/rows/0/card", "/rows/1/card"),
        ),
        (
            "/rows/1",
            {"rows": [ROWS["rows"][0], None, {"id": 3}], "next": {"a/b": "x"}},  # type: ignore[index]
            ("/rows/1",),
        ),
        ("/*", {}, ("/rows", "/next")),
        ("/nothing", ROWS, ()),
        ("/rows/7/card", ROWS, ()),
        ("/rows/card", ROWS, ()),
        ("/next/a~1b/deeper", ROWS, ()),
    ],
)
def test_fields_are_removed_and_named(pointer: str, expected: Any, changed: tuple[str, ...]) -> None:
    value = copy.deepcopy(ROWS)
    found = apply_obligations(value, [redact(pointer)])
    assert (found.value, found.changed) == (expected, changed)
    assert value == ROWS


@pytest.mark.parametrize(
    ("value", "rows", "expected", "changed"),
    [
        ([1, 2, 3], "2", [1, 2], ("",)),
        ([1, 2], "2", [1, 2], ()),
        ([1], "0", [], ("",)),
        ({"a": {"b": [1, 2]}, "c": [1]}, "1", {"a": {"b": [1]}, "c": [1]}, ("/a/b",)),
        # A row is given whole.
        ({"rows": [{"tags": [1, 2, 3]}, {}]}, "1", {"rows": [{"tags": [1, 2, 3]}]}, ("/rows",)),
        ("text", "0", "text", ()),
    ],
)
def test_lists_are_cut_and_named(value: Any, rows: str, expected: Any, changed: tuple[str, ...]) -> None:
    found = apply_obligations(value, [Obligation("cap_rows", (rows,))])
    assert (found.value, found.changed) == (expected, changed)


def test_what_binds_twice_is_done_twice() -> None:
    found = apply_obligations(ROWS, [redact("/next", "/rows/*/card"), Obligation("cap_rows", ("1",))])
    assert found.value == {"rows": [{"id": 1, "tags": [1, 2, 3]}]}
    assert found.changed == ("/next", "/rows/0/card", "/rows/1/card", "/rows")


@pytest.mark.parametrize(
    ("obligation", "sandbox", "kept"),
    [
        (redact("/a"), "in_process", True),
        (redact(), "in_process", False),
        (redact("a"), "in_process", False),
        (redact("/a", "/~2"), "in_process", False),
        (Obligation("cap_rows", ("5",)), "in_process", True),
        (Obligation("max_priority", ("8",)), "in_process", True),
        (Obligation("max_priority", ("11",)), "in_process", False),
        (Obligation("max_priority", ()), "in_process", False),
        (Obligation("cap_rows", ("-5",)), "in_process", False),
        (Obligation("cap_rows", ()), "in_process", False),
        (Obligation("cap_rows", ("1", "2")), "in_process", False),
        (Obligation("sandbox_tier", ("1",)), "in_process", True),
        (Obligation("sandbox_tier", ("2",)), "in_process", False),
        (Obligation("sandbox_tier", ("2",)), "process", True),
        (Obligation("sandbox_tier", ("3",)), "machine", True),
        (Obligation("sandbox_tier", ("1",)), "unheard_of", False),
        (Obligation("sandbox_tier", ("high",)), "machine", False),
        (Obligation("redact_pii"), "in_process", True),
        (Obligation("redact_pii", ("email",)), "machine", False),
        (Obligation("dry_run"), "machine", False),
        (Obligation("updated_input"), "machine", False),
        (Obligation("unspecified"), "machine", False),
        (Obligation("99"), "machine", False),
    ],
)
def test_what_cannot_be_kept_is_named(obligation: Obligation, sandbox: str, kept: bool) -> None:
    assert unmet_kinds([obligation], a_tool(), sandbox) == ([] if kept else [obligation.kind])


async def test_a_bound_call_answers_with_less_and_says_so_in_the_envelope() -> None:
    world = World()
    world.policy.answer = a_decision(obligations=(redact("/said"), Obligation("sandbox_tier", ("1",))))
    result = await world.invoke.execute(a_request())
    assert (parse(result.content), result.changed) == ({}, ("/said",))
    envelope = envelope_of(result)
    assert (envelope.redaction_state, list(envelope.adjusted_result)) == (2, ["/said"])
    assert result_of(envelope).changed == ("/said",)
    # The evidence is of what was answered, not of what was removed.
    ended = world.trail.durable[-1]
    assert ended.result is not None
    assert ended.result.digest == digest({})


async def test_a_call_bound_to_hide_what_is_personal_hides_it_from_its_caller_and_from_the_evidence() -> None:
    world = World()
    world.policy.answer = a_decision(obligations=(Obligation("redact_pii"),))
    result = await world.invoke.execute(a_request(arguments=b'{"text":"a@example.com"}'))
    assert (parse(result.content), result.changed) == ({"said": "[redacted:email]"}, ("/said",))
    ended = world.trail.durable[-1]
    assert ended.result is not None
    assert ended.result.digest == digest({"said": "[redacted:email]"})


def test_without_a_scanner_nothing_is_taken_for_examined() -> None:
    with pytest.raises(MeshError) as caught:
        apply_obligations({"a": 1}, [Obligation("redact_pii")])
    assert caught.value.reason is Reason.SANITIZATION_FAILED


async def test_an_unbound_result_says_that_nothing_was_removed() -> None:
    envelope = envelope_of(await World().invoke.execute(a_request()))
    assert (envelope.redaction_state, list(envelope.adjusted_result)) == (1, [])


async def test_a_sandbox_that_is_too_weak_refuses_before_anything_runs() -> None:
    world = World()
    world.policy.answer = a_decision(obligations=(Obligation("sandbox_tier", ("2",)), redact("/said")))
    error = await world.failure(a_request())
    assert (error.reason, error.metadata["obligations"]) == (Reason.PERMISSION_DENIED, "sandbox_tier")
    assert world.runner.calls == []


async def test_a_repeated_call_is_answered_under_what_binds_it_now() -> None:
    world = World()
    first = await world.invoke.execute(a_request(idempotency_key="k"))
    assert parse(first.content) == {"said": "hello"}
    world.policy.answer = a_decision(obligations=(redact("/said"),))
    again = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (parse(again.content), again.changed, again.replayed) == ({}, ("/said",), True)
    assert len(world.runner.calls) == 1
