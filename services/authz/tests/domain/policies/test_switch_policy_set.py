"""A switch of the active policy set: compiled first, then stored, then told to the other replicas, then used here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.authz.domain.policies.activate_policy_set import ActivatePolicySet
from services.authz.domain.policies.model import StoredPolicySet
from services.authz.domain.policies.rollback_policy_set import RollbackPolicySet

STORED = StoredPolicySet(1, "sha256:one", {}, 1, "", "alice", datetime(2026, 1, 1, tzinfo=UTC))


class Steps:
    """The stored sets, the compiled ones and the feed. Notes what is asked of them, in order."""

    def __init__(self, *, compiles: bool = True) -> None:
        self.taken: list[str] = []
        self._compiles = compiles

    async def find(self, number: int) -> StoredPolicySet | None:
        return STORED if number == STORED.number else None

    async def previous(self) -> StoredPolicySet | None:
        return STORED

    async def engine_for(self, version: str) -> None:
        self.taken.append(f"compile {version}")
        if not self._compiles:
            raise MeshError(Reason.POLICY_INVALID)

    async def activate(self, number: int, *_: Any) -> StoredPolicySet:
        self.taken.append("store")
        return STORED

    async def roll_back(self, *_: Any) -> StoredPolicySet:
        self.taken.append("store")
        return STORED

    def announce(self) -> None:
        self.taken.append("announce")

    async def refresh(self) -> None:
        self.taken.append("use")


def use_case(kind: Any, steps: Any) -> Any:
    return kind(steps, steps, ManualClock(), steps.announce)


SWITCHES = [
    pytest.param(lambda steps: use_case(ActivatePolicySet, steps).execute(1, None, "alice"), id="activate"),
    pytest.param(lambda steps: use_case(RollbackPolicySet, steps).execute(None, "alice"), id="rollback"),
]


@pytest.mark.parametrize("switch", SWITCHES)
async def test_other_replicas_are_woken_once_the_switch_is_stored(switch: Any) -> None:
    steps = Steps()
    assert await switch(steps) is STORED
    assert steps.taken == ["compile sha256:one", "store", "announce", "use"]


@pytest.mark.parametrize("switch", SWITCHES)
async def test_a_set_that_no_longer_compiles_is_neither_stored_nor_announced(switch: Any) -> None:
    steps = Steps(compiles=False)
    with pytest.raises(MeshError) as caught:
        await switch(steps)
    assert caught.value.reason is Reason.POLICY_INVALID
    assert steps.taken == ["compile sha256:one"]
