"""What keeps the limits of a sandbox."""

from __future__ import annotations

import pytest

from services.executor.adapters.sandbox.bounds import Bound, Bounds, bounds_with
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.domain.tool import Limit
from services.executor.tests.sandboxes import missing


def test_cgroups_keep_what_their_controllers_limit() -> None:
    every = bounds_with({"memory", "pids", "cpu", "cpuacct"})
    assert {every.memory, every.processes, every.cpu_time, every.cpu_share} == {Bound.GROUPS}
    counted = bounds_with({"cpuacct"})
    assert (counted.cpu_time, counted.cpu_share) == (Bound.GROUPS, Bound.NONE)
    assert every.unkept() == frozenset()
    assert counted.unkept() == {Limit.CPU_SHARE}
    assert Bounds(Bound.NONE, Bound.NONE, Bound.NONE, Bound.NONE, has_volumes=False).unkept() == frozenset(Limit)


@pytest.mark.parametrize("kind", ["bubblewrap", "gvisor"])
async def test_a_sandbox_without_cgroups_measures_memory_and_says_so(kind: str) -> None:
    if why := await missing(kind):
        pytest.skip(why)
    sandbox = {"bubblewrap": BubblewrapSandbox, "gvisor": GvisorSandbox}[kind]("test", cgroups=CgroupPolicy("off"))
    try:
        assert sandbox.bounds() is None
        assert sandbox.unavailable_reason() == ""
        bounds = sandbox.bounds()
        assert bounds is not None
        assert (bounds.memory, bounds.processes, bounds.cpu_share) == (Bound.WATCH, Bound.RLIMITS, Bound.NONE)
    finally:
        await sandbox.close()


@pytest.mark.parametrize("kind", [BubblewrapSandbox, GvisorSandbox])
async def test_required_cgroups_refuse_every_weaker_bound(kind: type[BubblewrapSandbox | GvisorSandbox]) -> None:
    sandbox = kind("test", cgroups=CgroupPolicy("required", "/absent/parent"))
    try:
        assert sandbox.unavailable_reason()
        assert sandbox.bounds() is None
    finally:
        await sandbox.close()
