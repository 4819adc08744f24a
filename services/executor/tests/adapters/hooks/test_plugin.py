"""Hooks that run in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.json.jsonio import MAX_BYTES, MAX_DEPTH
from services.executor.adapters.hooks.plugin import Plugin, load_plugin
from services.executor.domain.hooks.answers import HookFailedError
from services.executor.domain.scheduling.heavy_work import HeavyWork, Principal
from services.executor.tests.held_thread import offloaded

SHARE = HeavyWork().share_of(Principal("acme", "ada"))


async def echoing(event: dict[str, Any]) -> Any:
    return {"context": [event["phase"]]}


async def meddling(event: dict[str, Any]) -> Any:
    event["input"]["text"] = "mine"
    return {"input": event["input"]}


async def crashing(event: dict[str, Any]) -> Any:
    raise LookupError(event)


async def timing_out(event: dict[str, Any]) -> Any:
    raise TimeoutError


async def giving_up(event: dict[str, Any]) -> Any:
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    return await waited_for


async def leaving(event: dict[str, Any]) -> Any:
    raise SystemExit(1)


async def waiting(event: dict[str, Any]) -> Any:
    event["waits"] = await asyncio.Event().wait()


async def talking(event: dict[str, Any]) -> Any:
    return {"context": ["x" * 1000]}


async def babbling(event: dict[str, Any]) -> Any:
    return {"context": {1, 2}}


def plugin(function: Any) -> Plugin:
    return Plugin("guard", function, max_bytes=500)


async def test_a_function_is_found_by_its_name_and_answers() -> None:
    assert load_plugin("asyncio:sleep") is not None
    assert await plugin(echoing).ask({"phase": "pre"}, SHARE) == {"context": ["pre"]}


async def test_a_plugin_gets_a_copy_of_the_event() -> None:
    event = {"input": {"text": "hello"}}
    assert await plugin(meddling).ask(event, SHARE) == {"input": {"text": "mine"}}
    assert event == {"input": {"text": "hello"}}


async def measuring(event: dict[str, Any]) -> Any:
    return {"context": [len(event["result"]["text"]), event["input"] != {}]}


async def test_a_plugin_sees_events_of_any_size_and_depth() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"more": deep}
    event = {"result": {"text": "x" * (MAX_BYTES + 1)}, "input": deep}
    assert await plugin(measuring).ask(event, SHARE) == {"context": [MAX_BYTES + 1, True]}


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (crashing, "crashed"),
        (timing_out, "crashed"),
        (giving_up, "crashed"),
        (leaving, "crashed"),
        (talking, "answer_invalid"),
        (babbling, "answer_invalid"),
    ],
)
async def test_any_misbehaviour_of_a_plugin_fails_the_hook(function: Any, kind: str) -> None:
    with pytest.raises(HookFailedError) as caught:
        await plugin(function).ask({"phase": "pre"}, SHARE)
    assert caught.value.kind == kind


async def test_canceling_the_call_cancels_its_plugin() -> None:
    asked = asyncio.create_task(plugin(waiting).ask({"phase": "pre"}, SHARE))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await plugin(waiting).ask({"phase": "pre"}, SHARE)


@pytest.mark.parametrize(
    "entry_point", ["no_such_module_anywhere:f", "asyncio:no_such_function", "json:dumps", "asyncio:__name__"]
)
def test_an_invalid_entry_point_is_refused_at_load(entry_point: str) -> None:
    with pytest.raises(ValueError):
        load_plugin(entry_point)


async def test_a_large_event_is_copied_beside_the_event_loop() -> None:
    heavy_work = HeavyWork(threads=1)
    asked = plugin(echoing).ask({"phase": "post", "result": "x" * MAX_BYTES}, heavy_work.share_of(SHARE.owner))
    assert await offloaded(heavy_work, asked) == {"context": ["post"]}
