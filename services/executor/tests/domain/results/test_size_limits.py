"""However much there is to tell beside a result, the answer fits into one message, and says how much there was."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.errors import Reason
from libs.common.json.jsonio import dump
from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from services.executor.adapters.registry.compile_arguments import compile_arguments
from services.executor.adapters.registry.json_schema import output_contract
from services.executor.convert.invocation import envelope_of, preview_of, response_of, result_of
from services.executor.domain.argument_spec import Change
from services.executor.domain.hooks.answers import MAX_CONTEXTS
from services.executor.domain.hooks.hooks import MAX_HOOKS, Hook, Phase
from services.executor.domain.model import Obligation, PreviewResult
from services.executor.domain.results.size_limits import (
    UNDO_BYTES,
    size_beside,
    truncate_changes,
    truncate_effects,
    truncate_paths,
    truncate_texts,
)
from services.executor.domain.run import Forecast, RunResult
from services.executor.domain.tool import Confinement, Effect
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_decision, a_manifest, a_request, a_result, a_tool, a_write_tool

ANYTHING = output_contract(b'{"type":"object"}', ())
# As many as a run may have, with names as long as names may be.
MANY = tuple(Effect(f"file:data/{'long' * 60}/{n}", "create", observed=True) for n in range(100_000))
FULL = {"content": b"x" * (3 << 20), "undo": b"x" * UNDO_BYTES}


class _Saying:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def ask(self, event: dict[str, Any], share: object) -> Any:
        return self._answer


def writing(ran: RunResult) -> World:
    world = World(a_write_tool(key_required=False, effects=(Effect("file:*", "create"),), output=ANYTHING))

    async def commit() -> None:
        return

    async def run(tool: Any, work: Any) -> RunResult:
        work.begin()
        return replace(ran, commit=commit, committed=lambda: ran.effects) if ran.effects else ran

    world.runner.run = run  # type: ignore[method-assign]
    return world


async def test_a_run_that_changed_very_much_is_answered_and_says_how_much() -> None:
    result = await writing(RunResult({}, effects=MANY)).invoke.execute(a_request())
    assert response_of(result).ByteSize() < MAX_MESSAGE_BYTES
    assert (result.effects, result.effect_count) == (MANY[: len(result.effects)], 100_000)
    assert 0 < len(result.effects) < 100_000
    # Also when the key of the call is used again.
    assert result_of(envelope_of(result)).effect_count == 100_000


async def test_hooks_that_say_very_much_are_heard_as_far_as_there_is_room() -> None:
    said = {"context": ["x" * 4096] * MAX_CONTEXTS}
    hooks = [Hook(f"h{n}", Phase.POST, ("*",), 5.0, _Saying(said)) for n in range(MAX_HOOKS)]
    result = await World(a_tool(output=ANYTHING), hooks=hooks).invoke.execute(a_request())
    assert response_of(result).ByteSize() < MAX_MESSAGE_BYTES // 4
    assert len(result.context) >= MAX_CONTEXTS


async def test_a_few_changes_are_listed_whole() -> None:
    result = await writing(RunResult({}, effects=MANY[:7])).invoke.execute(a_request())
    assert (result.effects, result.effect_count) == (MANY[:7], 7)


async def test_what_undoes_a_call_is_whole_or_the_call_has_no_effect() -> None:
    dropped = []

    async def drop() -> None:
        dropped.append(1)

    error = await writing(RunResult({}, undo={"log": "x" * UNDO_BYTES}, rollback=drop)).failure(a_request())
    assert (error.reason, dropped) == (Reason.RESULT_TOO_LARGE, [1])


async def test_a_field_that_was_removed_from_every_row_is_named_once() -> None:
    world = World(a_tool(output=ANYTHING, max_result_bytes=1000))
    fields = Obligation("redact_fields", ("/rows/*/email", "/owner"))
    world.policy.answer = a_decision(obligations=(fields,))
    rows = [{"email": "a@example.com", "n": n} for n in range(50_000)]

    async def read(arguments: dict[str, Any]) -> Any:
        return {"rows": rows, "owner": "x"}

    world.runner.behave = read
    result = await world.invoke.execute(a_request())
    assert result.stored is not None
    assert result.changed == ("/rows/*/email", "/owner")
    assert response_of(result).ByteSize() < MAX_MESSAGE_BYTES


async def test_a_default_that_was_filled_in_everywhere_is_named_once() -> None:
    entry = {"type": "object", "properties": {"unit": {"type": "string", "default": "m"}}}
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": entry}}}
    manifest = a_manifest()
    manifest.input.CopyFrom(mpb.InputContract(schema=dump(schema), mutation_policy=mpb.INPUT_MUTATION_POLICY_DEFAULTS))
    world = World(
        a_tool(input_schema=schema, output=ANYTHING, argument_spec=compile_arguments(manifest, Confinement()))
    )

    async def count(arguments: dict[str, Any]) -> Any:
        return {"units": sum(each["unit"] == "m" for each in arguments["list"])}

    world.runner.behave = count
    result = await world.invoke.execute(a_request(arguments=dump({"list": [{}] * 20_000})))
    assert result.content == b'{"units":20000}'
    assert result.changes == (Change("/list/*/unit", "default", "schema"),)
    few = await world.invoke.execute(a_request(arguments=dump({"list": [{}, {"unit": "km"}, {}]})))
    assert [change.path for change in few.changes] == ["/list/0/unit", "/list/2/unit"]


@pytest.mark.parametrize(
    ("pointers", "told"),
    [
        ([], ()),
        (["/a/0", "/a/1"], ("/a/0", "/a/1")),
        ([f"/a/{n}/b" for n in range(50_000)], ("/a/*/b",)),
        ([f"/{'k' * 1000}{n}" for n in range(1000)], ("",)),
    ],
)
def test_places_become_fewer_only_where_they_are_too_many(pointers: list[str], told: tuple[str, ...]) -> None:
    assert truncate_paths(pointers) == told
    assert truncate_changes([Change(pointer, "hook", "h") for pointer in pointers]) == tuple(
        Change(pointer, "hook", "h") for pointer in told
    )


def test_the_fullest_answer_fits() -> None:
    names = [f"/{n:06d}{'k' * 40}" for n in range(1000)]
    result = a_result(
        effects=truncate_effects(MANY),
        effect_count=len(MANY),
        changed=truncate_paths(names),
        context=truncate_texts(["x" * 4096] * 1000),
        changes=truncate_changes([Change(name, "coercion", "string to integer") for name in names]),
        **FULL,
    )
    assert len(result.changed) == len(result.changes) == 1000
    assert response_of(result).ByteSize() < MAX_MESSAGE_BYTES
    assert envelope_of(result).ByteSize() <= len(result.content) + size_beside(result) + 4096


def test_a_preview_of_very_much_fits_and_says_how_much() -> None:
    foreseen = PreviewResult("i", "tools/a/versions/1", Forecast(MANY), False, "t", a_result().created, "trace")
    told = preview_of(foreseen)
    assert told.ByteSize() < MAX_MESSAGE_BYTES
    assert (told.change_count, len(told.changes) < 100_000) == (100_000, True)
