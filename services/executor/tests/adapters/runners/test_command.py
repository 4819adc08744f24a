"""Programs in real sandboxes."""

from __future__ import annotations

import asyncio
import secrets
import signal
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import Reason
from services.executor.adapters.runners.packs.argv import MAX_BYTES
from services.executor.domain.run import LogSource
from services.executor.domain.tool import Access
from services.executor.domain.validation_cost import INLINE_BYTES
from services.executor.domain.volumes import Volume
from services.executor.tests.held_thread import offloaded
from services.executor.tests.packing import MIB, a_change, command_tool, confined, work
from services.executor.tests.running import Running, Starting, own_tmp, processes_with, running, starting
from services.executor.tests.waiting import until

__all__ = ["own_tmp", "running", "starting"]

SPEAK = "pack:tricks/bin/speak.py"


async def test_a_program_gets_arguments_by_argv_and_stdin(running: Running) -> None:
    tool = command_tool(SPEAK, "echo", "--name={name}", "{file}", "--", "{name}")
    ran = await running.value(tool, work(name="-x; $(id)", file="a b", more=[1]))
    assert ran["given"] == {"name": "-x; $(id)", "file": "a b", "more": [1]}
    assert ran["rest"] == ["--name=-x; $(id)", "a b", "--", "-x; $(id)"]


async def test_a_program_inherits_no_environment(running: Running) -> None:
    asked = work()
    environment = (await running.value(command_tool(SPEAK, "echo"), asked))["environment"]
    assert environment["TOOLMESH_INVOCATION"] == asked.invocation_id
    assert environment["TOOLMESH_IDEMPOTENCY_KEY"] == "k1"
    assert [name for name in environment if "DATABASE" in name or "TLS" in name] == []


async def test_programs_of_the_system_can_be_used(running: Running) -> None:
    tool = command_tool("/usr/bin/cat")
    assert await running.value(tool, work(text="hello")) == {"text": "hello"}
    assert running.sandbox_for(tool) == "process/bubblewrap command /usr/bin/cat"


async def test_a_large_result_is_parsed_beside_the_event_loop(running: Running) -> None:
    text = "x" * (INLINE_BYTES + 1)
    call = running.value(command_tool("/usr/bin/cat"), work(text=text))
    assert await offloaded(running.heavy_work, call) == {"text": text}


async def test_the_sandbox_label_names_the_pack(running: Running) -> None:
    assert str(running.sandbox_for(command_tool(SPEAK))).startswith("process/bubblewrap command tricks@sha256:")


async def test_the_largest_argument_vector_starts(running: Running) -> None:
    tool = command_tool(SPEAK, "say", "1", *["{text}"] * 15)
    assert await running.value(tool, work(text="x" * (MAX_BYTES // 16))) == 1


async def test_a_value_that_looks_like_an_option_is_refused_before_the_start(running: Running) -> None:
    error = await running.failure(command_tool(SPEAK, "echo", "{name}"), work(name="--output=/x"))
    assert error.reason is Reason.INJECTION_DETECTED


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (("exit", "3"), Reason.EXECUTION_FAILED),
        (("say", ""), Reason.RESULT_INVALID),
        (("say", "not json"), Reason.RESULT_INVALID),
        (("say", "1 2"), Reason.RESULT_INVALID),
        (("say", "[" * 1000), Reason.RESULT_INVALID),
        (("flood",), Reason.RESULT_TOO_LARGE),
        (("kill", str(int(signal.SIGSEGV))), Reason.TOOL_CRASHED),
        (("kill", str(int(signal.SIGSYS))), Reason.TOOL_CRASHED),
        (("unheard-of",), Reason.RESULT_INVALID),
    ],
)
async def test_each_failure_of_a_program_has_its_own_error(
    starting: Starting, order: tuple[str, ...], reason: Reason
) -> None:
    running = await starting(output_bytes=MIB)
    error = await running.failure(command_tool(SPEAK, *order), work())
    assert error.reason is reason
    assert "secret" not in f"{error} {error.metadata}"


async def test_the_stderr_of_a_failing_program_is_logged(running: Running) -> None:
    run = work()
    await running.failure(command_tool(SPEAK, "exit", "3"), run)
    assert "secret of the program" in running.logged
    assert [(line.source, line.text) for line in run.notes.lines][-2:] == [
        (LogSource.STDERR, "secret of the program"),
        (LogSource.FAILURE, run.notes.lines[-1].text),
    ]


async def test_a_program_may_ignore_its_stdin(running: Running) -> None:
    tool = command_tool("/usr/bin/echo", "[]")
    assert await running.value(tool, work(text="x" * MIB)) == []


@pytest.mark.parametrize(
    ("elements", "cause"),
    [
        (["pack:tricks/plain.py"], "plain.py"),
        (["pack:nowhere/x"], "TOOLMESH_TOOL_PACKS"),
        (["/usr/bin/no-such-program"], "no-such-program"),
        (["/bin/ls"], "/usr/bin"),
        (["sh"], "shell"),
    ],
)
async def test_a_program_that_the_pack_does_not_offer_cannot_run(
    running: Running, elements: list[str], cause: str
) -> None:
    assert running.sandbox_for(command_tool(*elements)) is None
    error = await running.failure(command_tool(*elements), work())
    assert error.reason is Reason.TOOL_UNAVAILABLE
    assert cause in error.metadata["state_reason"]


async def test_a_program_never_runs_in_a_weaker_sandbox(running: Running) -> None:
    tool = command_tool(SPEAK, "echo", confinement=confined(tier="kernel"))
    assert running.sandbox_for(tool) is not None
    assert (await running.failure(tool, work())).reason is Reason.SANDBOX_UNAVAILABLE


async def test_a_canceled_program_is_killed(running: Running) -> None:
    marker = f"9999{secrets.randbelow(10**12)}"
    run = asyncio.create_task(running.value(command_tool(SPEAK, "wait", "{marker}"), work(marker=marker)))
    await until(lambda: any(f"sleep\0{marker}" in _line(each) for each in processes_with(marker)))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert processes_with(marker) == []


def _line(process: str) -> str:
    try:
        return (Path("/proc") / process / "cmdline").read_text()
    except OSError:
        return ""


async def test_a_program_changes_a_copy_of_its_volume(starting: Starting, tmp_path: Path) -> None:
    volume = tmp_path / "files"
    volume.mkdir()
    running = await starting(volumes={"files": Volume(volume, shared=True)})
    reach = confined(access=Access.FILES, reads=("files",), writes=("files",))
    tool = command_tool(SPEAK, "write", "files/a.txt", "{text}", confinement=reach, dry_run=True)
    preview = (await running(tool, work(preview=True, text="hello"))).forecast
    assert preview is not None
    made = a_change("file:files/a.txt", "create", None, "hello")
    assert preview.changes == (made,)
    assert preview.result == {"preview": "1"}
    ran: Any = await running(tool, work(text="hello"))
    assert ran.effects == (made,)
    assert ran.committed() is None
    assert not (volume / "a.txt").exists()
    await ran.commit()
    assert ran.committed() == (made,)
    assert (volume / "a.txt").read_text() == "hello"


async def test_a_program_with_network_access_has_no_preview(running: Running) -> None:
    tool = command_tool(SPEAK, "echo", confinement=confined(hosts=("example.com",)))
    assert (await running.failure(tool, work(preview=True))).reason is Reason.EXECUTION_FAILED
