"""Functions that see volumes: each call in a new process, on copies, in a real sandbox."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import Reason
from services.executor.adapters.runners.workspace.file_tree import read_tree
from services.executor.domain.tool import Access
from services.executor.domain.volumes import Volume
from services.executor.tests.packing import MIB, a_change, confined, python_tool, work
from services.executor.tests.running import Running, Starting, own_tmp, processes_with, starting
from services.executor.tests.waiting import until

__all__ = ["own_tmp", "starting"]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "link").symlink_to("/etc/shadow")
    return folder


@pytest.fixture
async def running(starting: Starting, volume: Path) -> Running:
    return await starting(volumes={"files": Volume(volume, shared=True)})


def writer(name: str = "hostile:writes", **changes: Any) -> Any:
    reach = {"access": Access.FILES, "reads": ("files",), "writes": ("files",), **changes}
    return python_tool(f"tricks/{name}", confinement=confined(**reach))


def asked(*steps: dict[str, Any], **changes: Any) -> Any:
    return work(volume="files", steps=list(steps), **changes)


def step(do: str, path: str, **more: Any) -> dict[str, Any]:
    return {"do": do, "path": path, **more}


def scratch_left() -> list[Path]:
    """What runs of this moment left of their copies."""
    return [each for each in Path(tempfile.gettempdir()).glob("toolmesh-runners-*/volumes/*") if each.exists()]


async def test_a_module_that_exits_during_import_is_logged(running: Running) -> None:
    assert (await running.failure(writer("dying:anything"), asked())).reason is Reason.TOOL_CRASHED
    assert "last words of the module" in running.logged
    assert (await running.failure(python_tool("tricks/dying:anything"), work())).reason is Reason.TOOL_CRASHED


async def test_effects_are_observed_and_then_committed(running: Running, volume: Path) -> None:
    ran = await running(writer(), asked(step("write", "sub/b.txt", text="b"), step("remove", "a.txt")))
    assert ran.effects == (
        a_change("file:files/a.txt", "delete", "a"),
        a_change("file:files/sub/b.txt", "create", None, "b"),
    )
    assert (volume / "a.txt").exists()
    assert ran.commit is not None
    await ran.commit()
    assert not (volume / "a.txt").exists()
    assert (volume / "sub" / "b.txt").read_text() == "b"
    assert (volume / "link").is_symlink()


async def test_a_rollback_leaves_the_volume_unchanged(running: Running, volume: Path) -> None:
    ran = await running(writer(), asked(step("write", "a.txt", text="A")))
    assert ran.rollback is not None
    await ran.rollback()
    assert (volume / "a.txt").read_text() == "a"


async def test_every_call_gets_a_new_process(running: Running) -> None:
    tokens = {(await running.value(writer(), asked()))["token"] for _ in range(2)}
    assert len(tokens) == 2
    assert len(running.pool) == 0


async def test_a_run_without_effects_has_nothing_to_commit(running: Running) -> None:
    ran = await running(writer(), asked())
    assert (ran.effects, ran.commit, ran.rollback) == ((), None, None)


async def test_a_write_of_a_read_only_tool_is_observed(running: Running, volume: Path) -> None:
    ran = await running(writer(writes=()), asked(step("hide", "a.txt", text="!")))
    [effect] = ran.effects
    assert (effect.resource, effect.operation, effect.observed) == ("file:files/a.txt", "update", True)
    assert ran.rollback is not None
    await ran.rollback()
    assert (volume / "a.txt").read_text() == "a"


async def test_a_preview_leaves_the_volume_unchanged(running: Running, volume: Path) -> None:
    ran = await running(writer(), asked(step("write", "a.txt", text="A"), preview=True))
    assert ran.forecast is not None
    assert ran.forecast.changes == (a_change("file:files/a.txt", "update", "a", "A"),)
    assert (ran.effects, ran.commit, ran.rollback) == ((), None, None)
    assert (volume / "a.txt").read_text() == "a"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([step("write", "a.txt", text="A"), step("fail", "x")], Reason.EXECUTION_FAILED),
        ([step("link", "x", to="/etc/passwd")], Reason.EXECUTION_FAILED),
        ([step("pipe", "x")], Reason.EXECUTION_FAILED),
        ([step("fill", "sub", bytes=20 * MIB)], Reason.RESOURCE_LIMIT_EXCEEDED),
        ([step("fill", "sub", bytes=20 * MIB, stays=True)], Reason.RESOURCE_LIMIT_EXCEEDED),
        ([step("write", "../../etc/x", text="")], Reason.EXECUTION_FAILED),
        ([step("nest", "sub", name="d", times=1500)], Reason.RESOURCE_LIMIT_EXCEEDED),
        ([step("nest", "sub", name="n" * 250, times=20)], Reason.EXECUTION_FAILED),
        # Very deep nesting must not hide the disk usage.
        (
            [step("nest", "sub", name="d", times=1500), step("fill", ".", bytes=20 * MIB, stays=True)],
            Reason.RESOURCE_LIMIT_EXCEEDED,
        ),
        (
            [step("nest", "sub", name="n" * 250, times=20), step("fill", ".", bytes=20 * MIB, stays=True)],
            Reason.RESOURCE_LIMIT_EXCEEDED,
        ),
    ],
)
async def test_a_failed_run_has_no_effects(
    running: Running, volume: Path, steps: list[dict[str, Any]], reason: Reason
) -> None:
    (volume / "link").unlink()
    before = read_tree(volume, MIB)
    error = await running.failure(writer(), asked(*steps))
    assert error.reason is reason
    assert read_tree(volume, MIB) == before
    await until(lambda: not scratch_left())


async def test_modes_set_by_a_tool_are_not_committed(running: Running, volume: Path) -> None:
    ran = await running(writer(), asked(step("setuid", "program"), step("close", "sub"), step("close", "a.txt")))
    assert [(each.resource, each.operation) for each in ran.effects] == [("file:files/program", "create")]
    assert ran.commit is not None
    await ran.commit()
    assert (volume / "program").stat().st_mode & 0o7777 == 0o644


async def test_links_of_the_volume_are_hidden(running: Running) -> None:
    tool = writer("hostile:looks")
    assert "refused" in await running.value(tool, work(path="/volumes/files/link"))
    assert await running.value(tool, work(path="/volumes/files/a.txt")) == {"read": "a"}


async def test_a_canceled_run_leaves_no_process_and_no_copy(running: Running) -> None:
    marker = f"9999{secrets.randbelow(10**12)}"
    run = asyncio.create_task(running.value(writer("plain:waits"), work(marker=marker)))
    await until(lambda: len(processes_with(marker)) >= 3)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert processes_with(marker) == []
    await until(lambda: not scratch_left())


async def test_a_reader_cannot_block_a_commit(running: Running, volume: Path) -> None:
    """A large volume is bound read-only to a reader, which could lock any file that it can open."""
    (volume / "big").write_bytes(b"x" * 2 * MIB)
    first = await running(writer(), asked(step("write", "a.txt", text="1")))
    assert first.commit is not None
    await first.commit()
    reading = writer("hostile:locks", writes=(), scratch_bytes=MIB)
    reader = asyncio.create_task(running.value(reading, work(volume="files")))
    await until(lambda: is_locked(volume))
    ran = await running(writer(), asked(step("write", "a.txt", text="2")))
    assert ran.commit is not None
    keeping = asyncio.ensure_future(ran.commit())
    await asyncio.wait([keeping], timeout=10)
    kept = keeping.done()
    reader.cancel()
    await asyncio.wait([reader, keeping])
    assert kept
    assert (volume / "a.txt").read_text() == "2"


def is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.fixture
async def separate(starting: Starting, volume: Path) -> Running:
    return await starting(volumes={"files": Volume(volume)})


async def commit(running: Running, request: Any) -> None:
    ran = await running(writer(), request)
    assert ran.commit is not None
    await ran.commit()


async def test_a_tenant_neither_sees_nor_changes_the_files_of_another(separate: Running, volume: Path) -> None:
    report = step("write", "report.txt", text="of acme")
    await commit(separate, asked(report, tenant="acme"))
    looking = work(path="/volumes/files/report.txt", tenant="beta")
    assert "refused" in await separate.value(writer("hostile:looks"), looking)
    assert (await separate.failure(writer(), asked(step("remove", "report.txt"), tenant="beta"))).reason is (
        Reason.EXECUTION_FAILED
    )
    await commit(separate, asked(step("write", "report.txt", text="of beta"), tenant="beta"))
    mine = work(path="/volumes/files/report.txt", tenant="acme")
    assert await separate.value(writer("hostile:looks"), mine) == {"read": "of acme"}
    assert (volume / "tenant-beta" / "report.txt").read_text() == "of beta"


async def test_callers_without_a_tenant_have_a_folder_of_their_own(separate: Running, volume: Path) -> None:
    await commit(separate, asked(step("write", "report.txt", text="of no tenant"), tenant=""))
    assert (volume / "no-tenant" / "report.txt").read_text() == "of no tenant"
    assert await separate.value(writer("hostile:looks"), work(path="/volumes/files/a.txt", tenant="")) != {"read": "a"}
