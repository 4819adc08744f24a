"""A sensitive argument is hidden wherever the tool repeats it."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.jsonio import dump, parse
from libs.common.redaction.declared import Declared
from libs.common.redaction.known_values import KnownValues
from libs.common.redaction.scanner import Scanner
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.registry.json_schema import output_contract
from services.executor.domain import errors
from services.executor.domain.results.repeated_values import hide_in_error, hide_in_forecast, hide_in_result
from services.executor.domain.run import Forecast, RunRequest, RunResult
from services.executor.domain.tool import Effect, Tool
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_request, a_tool

SECRET = "plain-words-only"
KNOWN = KnownValues({SECRET})
ARGUMENTS = dump({"text": f"x {SECRET}"[:20], "secret": SECRET})


def recorded(world: World) -> bytes:
    encoder = RecordEncoder("executor-1")
    return b"".join(encoder.encode(record) for record in world.trail.durable)


def test_a_result_loses_the_value_in_texts_and_names() -> None:
    value = {"said": f"<{SECRET}>", SECRET: [SECRET, 1], "other": "y"}
    shown, changed = hide_in_result(value, None, KNOWN)
    marked = "[redacted:declared]"
    assert shown == {"said": f"<{marked}>", marked: [marked, 1], "other": "y"}
    assert set(changed) == {"/said", f"/{marked}", f"/{marked}/0"}


def test_a_field_that_the_output_declares_is_returned_on_purpose() -> None:
    declared = Declared.of({"properties": {"key": {"x-sensitivity": "high"}}}, [])
    shown, changed = hide_in_result({"key": SECRET, "echo": SECRET}, declared, KNOWN)
    assert shown == {"key": SECRET, "echo": "[redacted:declared]"}
    assert changed == ("/echo",)


@pytest.mark.parametrize("known", [None, KnownValues({"something else"})])
def test_a_result_that_repeats_nothing_is_the_same_object(known: KnownValues | None) -> None:
    value = {"said": SECRET}
    assert hide_in_result(value, None, known)[0] is value


def test_an_error_loses_it_everywhere() -> None:
    error = MeshError(
        Reason.EXECUTION_FAILED,
        message=f"no {SECRET}",
        metadata={"a": SECRET},
        violations=[Violation(f"/{SECRET}", "x", SECRET)],
    )
    hide_in_error(error, Scanner().knowing(KNOWN))
    assert SECRET not in f"{error} {error.message} {error.metadata} {error.violations}"


def test_a_preview_loses_it_in_its_texts() -> None:
    impact, conditions = hide_in_forecast(Forecast(preconditions=((SECRET, True),), impact=SECRET), KNOWN)
    assert SECRET not in impact + conditions[0][0]


async def test_a_call_that_repeats_it_does_not_show_it() -> None:
    world = World(a_tool(output=output_contract(b"{}", ())))

    async def repeat(arguments: dict[str, Any]) -> Any:
        assert arguments["secret"] == SECRET
        return {"said": arguments["secret"], "list": [f"({arguments['secret']})"]}

    world.runner.behave = repeat
    result = await world.invoke.execute(a_request(arguments=ARGUMENTS, idempotency_key=SECRET, task_id=f"t {SECRET}"))
    assert parse(result.content) == {"said": "[redacted:declared]", "list": ["([redacted:declared])"]}
    assert set(result.changed) == {"/said", "/list/0"}
    assert len(world.trail.durable) == 2
    assert SECRET.encode() not in recorded(world)


async def test_an_error_that_repeats_it_does_not_show_it() -> None:
    world = World()

    async def fail(arguments: dict[str, Any]) -> Any:
        raise errors.execution_failed(f"cannot log in with {arguments['secret']}")

    world.runner.behave = fail
    failure = await world.failure(a_request(arguments=ARGUMENTS))
    assert failure.reason is Reason.EXECUTION_FAILED
    assert SECRET not in f"{failure} {failure.message} {failure.metadata}"
    assert SECRET.encode() not in recorded(world)


async def test_effects_that_name_it_are_recorded_without_it() -> None:
    world = World()

    async def run(tool: Tool, work: RunRequest) -> RunResult:
        work.begin()
        assert work.scanner is not None
        assert work.scanner.text(SECRET).findings
        return RunResult({"said": "done"}, effects=(Effect(f"users/{SECRET}", "create"),))

    world.runner.run = run  # type: ignore[method-assign]
    await world.failure(a_request(arguments=ARGUMENTS))
    assert b"users/[redacted:declared]" in recorded(world)
    assert SECRET.encode() not in recorded(world)
