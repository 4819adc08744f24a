"""Part by part, in the order of an upgrade; the part that fails is undone and those after it stay."""

from __future__ import annotations

from collections.abc import Mapping

from localmesh.upgrade.call_counts import CallCounts
from localmesh.upgrade.deployments import RolloutState, Template
from localmesh.upgrade.progressive import ORDER, ProgressiveUpgrade, Stopped, UpgradeLimits

LIMITS = UpgradeLimits(error_rate=0.01, window_seconds=10, rollout_seconds=30)


class Mesh:
    """Deployments and calls, at both ports, with a clock that only a pause moves."""

    def __init__(self) -> None:
        self.versions = dict.fromkeys(ORDER, 1)
        self.changes: list[tuple[str, int]] = []
        self.unready: set[tuple[str, int]] = set()
        self.failing: set[tuple[str, int]] = set()
        self.calls_a_second, self.failed_share = 10.0, 0.5
        self.now, self.counts = 0.0, CallCounts()

    def read_template(self, part: str) -> Template:
        return {"version": self.versions[part]}

    def replace_template(self, part: str, template: Template) -> None:
        self.versions[part] = template["version"]
        self.changes.append((part, template["version"]))

    def read_rollout(self, part: str) -> RolloutState:
        return RolloutState((part, self.versions[part]) not in self.unready, "1 of 1 updated")

    def read(self) -> Mapping[str, CallCounts]:
        return {"pod": self.counts}

    def pause(self, seconds: float) -> None:
        self.now += seconds
        calls = self.calls_a_second * seconds
        share = self.failed_share if self.failing & set(self.versions.items()) else 0.0
        self.counts += CallCounts(calls, calls * share)


def upgrade(mesh: Mesh, *parts: str, version: int = 2) -> Stopped | None:
    run = ProgressiveUpgrade(mesh, mesh, LIMITS, lambda line: None, clock=lambda: mesh.now, pause=mesh.pause)
    return run.run({part: {"version": version} for part in parts or ORDER})


def test_called_services_come_before_their_callers() -> None:
    mesh = Mesh()
    assert upgrade(mesh) is None
    assert mesh.changes == [(part, 2) for part in ORDER]
    # Each was watched for the window before the next began.
    assert mesh.now >= len(ORDER) * LIMITS.window_seconds


def test_a_part_that_fails_calls_is_undone_and_the_next_ones_stay() -> None:
    mesh = Mesh()
    mesh.failing = {("registry", 2)}
    stopped = upgrade(mesh)
    assert stopped is not None
    assert (stopped.part, stopped.undone) == ("registry", True)
    assert mesh.changes == [("audit", 2), ("authz", 2), ("registry", 2), ("registry", 1)]


def test_it_is_stopped_before_the_end_of_the_window() -> None:
    mesh = Mesh()
    mesh.failing = {("audit", 2)}
    upgrade(mesh, "audit")
    assert mesh.now < LIMITS.window_seconds


def test_a_share_of_failures_within_the_limit_is_accepted() -> None:
    mesh = Mesh()
    mesh.failing, mesh.failed_share = {("audit", 2)}, 0.01
    assert upgrade(mesh, "audit") is None
    mesh.failing, mesh.failed_share = {("audit", 3)}, 0.011
    assert upgrade(mesh, "audit", version=3) is not None


def test_few_calls_are_judged_at_the_end_of_the_window() -> None:
    mesh = Mesh()
    mesh.failing, mesh.calls_a_second = {("audit", 2)}, 1
    assert upgrade(mesh, "audit") is not None
    assert mesh.now >= LIMITS.window_seconds
    mesh.failing, mesh.calls_a_second = set(), 0
    assert upgrade(mesh, "audit") is None


def test_a_part_that_does_not_become_ready_is_undone() -> None:
    mesh = Mesh()
    mesh.unready = {("authz", 2)}
    stopped = upgrade(mesh)
    assert stopped is not None
    assert (stopped.part, stopped.undone) == ("authz", True)
    assert mesh.now >= LIMITS.rollout_seconds
    assert mesh.versions == {**dict.fromkeys(ORDER, 1), "audit": 2}


def test_a_part_that_cannot_be_undone_is_reported() -> None:
    mesh = Mesh()
    mesh.unready = {("authz", 2), ("authz", 1)}
    stopped = upgrade(mesh, "authz")
    assert stopped is not None
    assert not stopped.undone


def test_a_part_that_has_the_version_is_not_touched() -> None:
    mesh = Mesh()
    mesh.versions["authz"] = 2
    assert upgrade(mesh, "authz", "gateway") is None
    assert mesh.changes == [("gateway", 2)]
