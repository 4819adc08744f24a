"""The sandbox selected for a tool."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.tiers import Tiers
from services.executor.adapters.sandbox.bounds import Bounds, bounds_with
from services.executor.adapters.sandbox.port import Plan, SandboxedProcess
from services.executor.domain.tool import Limit
from services.executor.tests.packing import confined, python_tool


class Claimed:
    """A sandbox that only says what it is."""

    def __init__(self, name: str, missing: str = "", controllers: frozenset[str] = frozenset({"memory"})) -> None:
        self.name = name
        self.closed = False
        self._missing, self._controllers = missing, controllers

    def unavailable_reason(self) -> str:
        return self._missing

    def bounds(self) -> Bounds | None:
        return None if self._missing else bounds_with(self._controllers)

    async def start(self, plan: Plan) -> SandboxedProcess:
        raise AssertionError("choosing a sandbox starts nothing")

    async def close(self) -> None:
        self.closed = True


def tool(tier: str, *declared: Limit) -> Any:
    return python_tool("x/y:z", confinement=confined(tier=tier, declared=frozenset(declared)))


PROCESS, KERNEL = Claimed("process/a"), Claimed("kernel/b")
GROUPED = Claimed("kernel/c", controllers=frozenset({"memory", "pids", "cpu"}))


@pytest.mark.parametrize(
    ("tier", "here", "chosen"),
    [
        ("process", {"process": PROCESS, "kernel": KERNEL}, "process/a"),
        ("process", {"process": Claimed("process/a", "off"), "kernel": KERNEL}, "kernel/b"),
        ("in_process", {"process": PROCESS}, "process/a"),
        ("kernel", {"process": PROCESS, "kernel": KERNEL}, "kernel/b"),
    ],
)
def test_the_weakest_sufficient_sandbox_is_selected(tier: str, here: dict[str, Any], chosen: str) -> None:
    assert Tiers(here).require(tool(tier)).name == Tiers(here).name(tool(tier)) == chosen


@pytest.mark.parametrize("tier", ["kernel", "machine", "surprise", ""])
def test_a_weaker_sandbox_is_never_selected(tier: str) -> None:
    here = Tiers({"process": PROCESS, "kernel": Claimed("kernel/b", "runsc is not installed")})
    assert here.find(tool(tier)) is None
    assert here.name(tool(tier)) == f"{tier}/missing"
    with pytest.raises(MeshError) as caught:
        here.require(tool(tier))
    assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE
    assert caught.value.metadata["sandbox"] == tier


def test_a_sandbox_that_does_not_keep_a_declared_limit_is_never_selected() -> None:
    demanding, modest = tool("process", Limit.CPU_SHARE, Limit.MEMORY), tool("process", Limit.MEMORY)
    without = Tiers({"process": PROCESS, "kernel": KERNEL})
    assert without.unkept() == (("process", Limit.CPU_SHARE), ("kernel", Limit.CPU_SHARE))
    assert without.require(modest).name == "process/a"
    with pytest.raises(MeshError) as caught:
        without.require(demanding)
    assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE
    assert caught.value.metadata == {"sandbox": "process/a", "limit": "cpu_share"}
    # A stronger sandbox that keeps it stands in.
    here = Tiers({"process": PROCESS, "kernel": GROUPED})
    assert here.require(demanding).name == "kernel/c"
    assert here.unkept() == (("process", Limit.CPU_SHARE),)


async def test_close_closes_every_sandbox() -> None:
    one, other = Claimed("process/a"), Claimed("kernel/b")
    await Tiers({"process": one, "kernel": other}).close()
    assert one.closed
    assert other.closed


def test_the_description_names_the_bounds_of_each_sandbox_or_what_is_missing() -> None:
    here = Tiers({"process": PROCESS, "kernel": Claimed("kernel/b", "runsc is not installed")})
    assert here.describe() == "process/a: not probed yet\nkernel/b: not probed yet\n"
    here.probe()
    assert here.describe() == f"process/a: {bounds_with({'memory'})}\nkernel/b: runsc is not installed\n"
