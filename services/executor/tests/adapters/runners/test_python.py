"""Functions of packs in warm workers: real processes in real sandboxes."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest
from msgspec.structs import replace

from libs.common.errors import Reason
from libs.common.redaction.known_values import KnownValues
from libs.common.redaction.scanner import Scanner
from services.executor.adapters.runners.worker.pool import PoolLimits
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.tool import Effect
from services.executor.domain.validation_cost import INLINE_BYTES
from services.executor.tests.held_thread import offloaded
from services.executor.tests.packing import MIB, confined, python_tool, work
from services.executor.tests.running import Running, Starting, own_tmp, processes_with, running, starting
from services.executor.tests.waiting import until

__all__ = ["own_tmp", "running", "starting"]

WHO = python_tool("tricks/plain:who")


async def token(running: Running, tenant: str = "acme", tool: Any = WHO) -> str:
    return str((await running.value(tool, work(tenant)))["token"])


async def test_a_function_returns_its_result(running: Running) -> None:
    assert (await running.value(WHO, work(say={"ü": [1, None, 2.5]})))["said"] == {"ü": [1, None, 2.5]}


async def test_the_sandbox_label_names_sandbox_and_code_digest(running: Running) -> None:
    name = running.sandbox_for(WHO)
    assert name is not None
    assert name.startswith("process/bubblewrap python tricks@sha256:")
    assert len(name) <= 255


async def test_a_call_reports_notes_and_gets_its_context(running: Running) -> None:
    asked = work(seconds=9.0)
    asked.arguments["seconds"] = 9.0
    ran = await running(python_tool("tricks/plain:about"), asked)
    assert ran.value == {"id": asked.invocation_id, "key": "k1", "preview": False, "in_time": True}
    assert ran.effects == (Effect("orders/1", "update", observed=False),)
    assert (ran.costs, ran.undo) == ((("tokens", 7),), {"order": 1})
    assert (ran.commit, ran.rollback) == (None, None)
    assert asked.notes.lines == [LogLine(LogSource.LOG, "a line for the author")]


async def test_notes_may_contain_names_that_are_not_utf8(running: Running) -> None:
    tool = python_tool("tricks/plain:stutters")
    ran = await running(tool, work(fails=False))
    assert (ran.value, ran.effects, ran.costs) == ({}, (Effect("caf?", "update"),), (("caf?", 1),))
    failing = work(fails=True)
    error = await running.failure(tool, failing)
    assert (error.reason, error.message) == (Reason.EXECUTION_FAILED, "caf?")
    assert failing.notes.lines == [LogLine(LogSource.LOG, "caf?")]
    assert (failing.notes.effects, failing.notes.costs) == ((Effect("caf?", "update"),), (("caf?", 1),))


async def test_each_call_of_a_warm_worker_has_its_own_lines(running: Running) -> None:
    """Also where a call keeps a thread, a stream or a half line for the next one, or prints too much."""
    tool = python_tool("tricks/chatty:chats")
    calls = [work(say=f"call {number}", how=how) for number, how in enumerate(("print", "half", "thread", "flood"))]
    tokens = [await running.value(tool, call) for call in calls]
    assert tokens[0] == tokens[1]
    spoken = [[line.text for line in call.notes.lines] for call in calls]
    first = ["loaded", "out call 0", "err call 0", "logged call 0", "raw call 0"]
    assert spoken[0] == first
    assert [line.source.value for line in calls[0].notes.lines] == ["stdout", "stdout", "stderr", "log", "stdout"]
    assert spoken[1] == ["half of call 1"]
    assert "out call 2" in spoken[2]
    for number, lines in enumerate(spoken):
        assert not any(f"call {other}" in line for line in lines for other in range(4) if other != number)
    assert calls[3].notes.omitted > 0
    assert sum(map(len, spoken[3])) <= 32_768


async def test_maximal_notes_fit_beside_the_smallest_result(running: Running) -> None:
    tool = python_tool("tricks/plain:talks", persists=False, max_result_bytes=2)
    assert len((await running(tool, work())).effects) == 1000


async def test_a_pack_brings_its_libraries(running: Running) -> None:
    assert await running.value(python_tool("tricks/plain:vendored"), work()) == 42


# Workers and whom they serve.


async def test_the_next_call_reuses_the_worker(running: Running) -> None:
    assert len({await token(running) for _ in range(5)}) == 1


async def test_no_worker_serves_two_tenants(running: Running) -> None:
    tenants = ["acme", "bolt", "acme", "bolt", "crow", ""]
    served: dict[str, set[str]] = {}
    for _ in range(3):
        tokens = await asyncio.gather(*(token(running, tenant) for tenant in tenants))
        for tenant, found in zip(tenants, tokens, strict=True):
            served.setdefault(found, set()).add(tenant)
    assert all(len(tenants) == 1 for tenants in served.values())


async def test_no_worker_serves_two_versions(running: Running) -> None:
    other = python_tool("tricks/plain:who", digest="sha256:other")
    assert await token(running) != await token(running, tool=other)


async def test_callers_without_tenant_share_no_worker(running: Running) -> None:
    ada, bob = work(""), replace(work(""), subject="did:key:bob")
    assert (await running.value(WHO, ada))["token"] != (await running.value(WHO, bob))["token"]


async def test_no_worker_serves_two_subjects_unless_the_tool_says_so(running: Running) -> None:
    sharing = python_tool("tricks/plain:who", digest="sha256:sharing", confinement=confined(shares_workers=True))
    for tool, served in ((WHO, 2), (sharing, 1)):
        subjects = (replace(work(), subject=subject) for subject in ("did:key:ada", "did:key:bob"))
        assert len({(await running.value(tool, request))["token"] for request in subjects}) == served


@pytest.mark.parametrize(
    "hook",
    [
        "handler",
        "native handler",
        "blocked",
        "profile",
        "trace",
        "thread profile",
        "collector",
        "builtin",
        "audit",
    ],
)
async def test_no_hook_of_a_call_outlives_it(running: Running, hook: str) -> None:
    """It would see the arguments of the next call."""
    hooks = python_tool("tricks/plain:hooks")
    assert await running.value(hooks, work(leave=hook)) == []
    assert await running.value(hooks, work()) == []


async def test_a_worker_answers_one_call_at_a_time(running: Running) -> None:
    answers = await asyncio.gather(*(running.value(WHO, work(say=number)) for number in range(6)))
    assert [answer["said"] for answer in answers] == list(range(6))


async def test_a_worker_is_replaced_after_its_number_of_calls(starting: Starting) -> None:
    running = await starting(workers=PoolLimits(max_calls=2))
    tokens = [await token(running) for _ in range(4)]
    assert (tokens[0], tokens[2]) == (tokens[1], tokens[3])
    assert tokens[0] != tokens[2]


async def test_an_idle_worker_ends(starting: Starting) -> None:
    running = await starting(workers=PoolLimits(idle_seconds=0.01))
    first = await token(running)
    await until(lambda: len(running.pool) == 0)
    assert await token(running) != first


async def test_a_worker_with_too_much_memory_is_replaced(running: Running) -> None:
    grows = python_tool("tricks/plain:grows", confinement=confined(memory_bytes=128 * MIB))
    tokens = [(await running.value(grows, work(bytes=50 * MIB)))["token"] for _ in range(3)]
    assert tokens[0] == tokens[1] != tokens[2]


# Nothing of one call is left for the next.


MESS = python_tool("tricks/plain:mess")


async def test_leftovers_of_a_call_are_removed_before_the_next(running: Running) -> None:
    left = await running.value(MESS, work(do="litter"))
    found = await running.value(MESS, work(do="found"))
    nothing = {"tmp": [], "environment": False, "timer": 0, "folder": "/tmp", "others": []}
    assert found == {"token": left["token"], **nothing}


async def test_a_leftover_thread_ends_the_worker(running: Running) -> None:
    left = await running.value(MESS, work(do="thread"))
    assert (await running.value(MESS, work(do="found")))["token"] != left["token"]


# ErrorMapping, told apart.


@pytest.mark.parametrize(
    ("name", "arguments", "reason", "warm"),
    [
        ("plain:fails", {}, Reason.EXECUTION_FAILED, True),
        ("plain:fails", {"partial": True}, Reason.PARTIAL_FAILURE, True),
        ("plain:raises", {}, Reason.EXECUTION_FAILED, True),
        ("plain:leaves", {}, Reason.EXECUTION_FAILED, False),
        ("plain:returns", {"what": "object"}, Reason.RESULT_INVALID, True),
        ("plain:returns", {"what": "nan"}, Reason.RESULT_INVALID, True),
        ("plain:circular", {}, Reason.RESULT_INVALID, True),
        ("plain:large", {"size": 3 * MIB}, Reason.RESULT_TOO_LARGE, True),
        ("plain:parts", {"count": 3, "fails_at": 0}, Reason.EXECUTION_FAILED, True),
        ("plain:parts", {"count": 3, "fails_at": 2}, Reason.STREAM_DISCARDED, True),
        ("hostile:exits", {"code": 0}, Reason.TOOL_CRASHED, False),
        ("hostile:exits", {"code": 3}, Reason.TOOL_CRASHED, False),
        ("hostile:crashes", {}, Reason.TOOL_CRASHED, False),
        ("hostile:tracer", {}, Reason.TOOL_CRASHED, False),
        ("hostile:forges", {}, Reason.TOOL_CRASHED, False),
        ("hostile:floods", {}, Reason.RESULT_TOO_LARGE, False),
        ("hostile:devours", {}, Reason.TOOL_OUT_OF_MEMORY, False),
        ("hostile:catches_memory", {}, Reason.TOOL_OUT_OF_MEMORY, False),
        ("hostile:children", {}, Reason.RESOURCE_LIMIT_EXCEEDED, False),
        ("hostile:threads", {}, Reason.RESOURCE_LIMIT_EXCEEDED, False),
        ("hostile:grows", {}, Reason.RESOURCE_LIMIT_EXCEEDED, False),
        ("hostile:hoards", {}, Reason.RESOURCE_LIMIT_EXCEEDED, False),
        ("broken:anything", {}, Reason.EXECUTION_FAILED, False),
        ("plain:missing", {}, Reason.EXECUTION_FAILED, False),
        ("plain:TOKEN", {}, Reason.EXECUTION_FAILED, False),
    ],
)
async def test_each_failure_of_a_function_has_its_own_error(
    starting: Starting, name: str, arguments: dict[str, Any], reason: Reason, warm: bool
) -> None:
    running = await starting(output_bytes=2 * MIB)
    error = await running.failure(python_tool(f"tricks/{name}"), work(**arguments))
    assert error.reason is reason
    assert "secret" not in f"{error} {error.metadata} {error.violations}"
    # After anything but a plain exception the process is gone, and its place is free.
    if warm:
        assert running.pool.idle == 1
    else:
        await until(lambda: len(running.pool) == 0)


async def test_failures_reach_the_caller_and_exceptions_the_log(running: Running) -> None:
    told = await running.failure(python_tool("tricks/plain:fails"), work())
    assert told.message == "the order is closed"
    raising = work()
    surprise = await running.failure(python_tool("tricks/plain:raises"), raising)
    assert raising.notes.lines[-1].source is LogSource.FAILURE
    assert "secret of the tool" in raising.notes.lines[-1].text
    assert surprise.metadata == {"exception": "ValueError"}
    assert "log" in surprise.message
    assert "secret of the tool" in running.logged


@pytest.mark.parametrize("dies", [False, True])
async def test_no_log_shows_a_sensitive_argument_that_the_tool_repeats(running: Running, dies: bool) -> None:
    run = work(secret="plain-words-only", dies=dies)
    run = replace(run, scanner=Scanner().knowing(KnownValues({"plain-words-only"})))
    await running.failure(python_tool("tricks/plain:repeats"), run)
    assert "[redacted:declared]" in running.logged
    assert "plain-words-only" not in running.logged


@pytest.mark.parametrize(
    ("name", "limit"), [("children", "processes"), ("threads", "processes"), ("grows", "file_size")]
)
async def test_a_resource_limit_is_named(running: Running, name: str, limit: str) -> None:
    failure = await running.failure(python_tool(f"tricks/hostile:{name}"), work())
    assert failure.metadata == {"limit": limit}


async def test_a_load_error_is_printable(running: Running) -> None:
    failure = await running.failure(python_tool("tricks/broken:anything"), work())
    assert failure.metadata == {"exception": "Wrong[31m"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("returns", {"what": "surrogate"}),
        ("returns", {"what": "wide"}),
        ("returns", {"what": "set"}),
        ("nested", {"depth": 100}),
        ("nested", {"depth": 5000}),
    ],
)
async def test_a_result_that_is_not_strict_json_is_refused(
    running: Running, name: str, arguments: dict[str, Any]
) -> None:
    error = await running.failure(python_tool(f"tricks/plain:{name}"), work(**arguments))
    assert error.reason is Reason.RESULT_INVALID


async def test_cpu_time_is_limited_per_call(running: Running) -> None:
    tool = python_tool("tricks/hostile:burns", own_limit=1.0)
    error = await running.failure(tool, work(seconds=1.0))
    assert error.reason is Reason.RESOURCE_LIMIT_EXCEEDED
    assert error.metadata["limit"] == "cpu"


async def test_a_large_result_is_parsed_beside_the_event_loop(running: Running) -> None:
    size = INLINE_BYTES + 1
    call = running.value(python_tool("tricks/plain:large"), work(size=size))
    assert len(await offloaded(running.heavy_work, call)) == size


async def test_many_small_values_are_refused(running: Running) -> None:
    error = await running.failure(python_tool("tricks/plain:many"), work(count=600_000))
    assert error.reason is Reason.RESULT_TOO_LARGE


async def test_a_tool_whose_results_are_never_stored_may_return_what_fits_inline(running: Running) -> None:
    tool = python_tool("tricks/plain:large", persists=False, max_result_bytes=1000)
    assert (await running.failure(tool, work(size=2000))).reason is Reason.RESULT_TOO_LARGE
    assert len(await running.value(tool, work(size=900))) == 900


async def test_stdout_of_a_tool_is_not_its_answer(running: Running) -> None:
    assert await running.value(python_tool("tricks/plain:prints"), work()) == {"stdin": ""}


async def test_streamed_parts_are_collected(running: Running) -> None:
    tool = python_tool("tricks/plain:parts")
    assert await running.value(tool, work(count=3)) == {"parts": [0, 1, 2]}
    assert await running.value(tool, work(count=3, result="all")) == "all"


# Previews.


async def test_a_preview_calls_the_preview_function(running: Running) -> None:
    tool = python_tool("tricks/plain:orders", dry_run=True)
    forecast = (await running(tool, work(preview=True))).forecast
    assert forecast is not None
    assert forecast.changes == (Effect("orders/2", "create"),)
    assert forecast.preconditions == (("the shop is open", False),)
    assert (forecast.impact, forecast.result) == ("One order would be made.", {"forecast": True})
    assert (await running(tool, work())).forecast is None


async def test_a_tool_without_preview_function_is_called_in_preview_mode(running: Running) -> None:
    asked = work(preview=True, seconds=5.0)
    asked.arguments["seconds"] = 5.0
    ran = await running(python_tool("tricks/plain:about"), asked)
    assert ran.forecast is not None
    assert ran.forecast.result["preview"] is True


# Where it cannot run.


@pytest.mark.parametrize(
    ("tool", "cause"),
    [
        (python_tool("nowhere/plain:who"), "TOOLMESH_TOOL_PACKS"),
        (python_tool("tricks/nowhere:who"), "module nowhere"),
        (python_tool("tricks/../plain:who"), "entry point"),
        (python_tool("tricks/plain:who", digest="v", confinement=confined(reads=("unknown",))), "TOOLMESH_VOLUMES"),
    ],
)
async def test_a_missing_pack_module_or_volume_cannot_run(running: Running, tool: Any, cause: str) -> None:
    assert running.sandbox_for(tool) is None
    error = await running.failure(tool, work())
    assert error.reason is Reason.TOOL_UNAVAILABLE
    assert cause in error.metadata["state_reason"]


@pytest.mark.parametrize("tier", ["kernel", "machine", "unheard-of"])
async def test_a_function_never_runs_in_a_weaker_sandbox(running: Running, tier: str) -> None:
    tool = python_tool("tricks/plain:who", digest=tier, confinement=confined(tier=tier))
    assert running.sandbox_for(tool) is not None
    assert (await running.failure(tool, work())).reason is Reason.SANDBOX_UNAVAILABLE
    assert len(running.pool) == 0


# What it can see and reach.


@pytest.mark.parametrize("path", ["/etc/shadow", "/root", "/packs/tricks/../../root", "/volumes/x"])
async def test_a_worker_sees_only_its_pack(running: Running, path: str) -> None:
    assert "refused" in await running.value(python_tool("tricks/hostile:looks"), work(path=path))


async def test_a_tool_reaches_only_the_hosts_of_its_manifest(running: Running) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reach = confined(hosts=("127.0.0.1",), ports=(port,))
    tool = python_tool("tricks/hostile:calls_out", confinement=reach)
    assert await running.value(tool, work(host="127.0.0.1", port=port)) == {"reached": True}
    error = await running.failure(tool, work(host="example.com", port=port))
    assert error.reason is Reason.NETWORK_POLICY_VIOLATION
    # What one call was refused is not held against the next.
    assert await running.value(tool, work(host="127.0.0.1", port=port)) == {"reached": True}
    # Without a preview function the effects are unknown until the tool runs.
    assert (await running.failure(tool, work(preview=True, host="x", port=1))).reason is Reason.EXECUTION_FAILED
    server.close()


async def test_a_tool_without_hosts_has_no_network(running: Running) -> None:
    assert await running.value(python_tool("tricks/hostile:calls_out"), work(host="x", port=80)) == {"reached": False}


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
    writer.close()


# The end.


async def test_a_canceled_call_leaves_no_process(running: Running) -> None:
    marker = f"9999{secrets.randbelow(10**12)}"
    run = asyncio.create_task(running.value(python_tool("tricks/plain:waits"), work(marker=marker)))
    await until(lambda: len(processes_with(marker)) >= 3)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert processes_with(marker) == []
    assert len(running.pool) == 0


async def test_calls_canceled_during_the_start_leave_bounded_idle_workers_that_serve_the_next(running: Running) -> None:
    for steps in range(12):
        run = asyncio.create_task(running.value(WHO, work()))
        for _ in range(steps):
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    await until(lambda: running.pool.starting == 0)
    assert 1 <= running.pool.idle == len(running.pool) <= 2
    await running.value(WHO, work())
    assert len(running.pool) <= 2


async def test_stop_ends_running_calls(starting: Starting) -> None:
    running = await starting()
    marker = f"9999{secrets.randbelow(10**12)}"
    run = asyncio.create_task(running.failure(python_tool("tricks/plain:waits"), work(marker=marker)))
    await until(lambda: len(processes_with(marker)) >= 3)
    await running._runners.stop()
    assert (await run).reason is Reason.TOOL_CRASHED
    assert processes_with(marker) == []
