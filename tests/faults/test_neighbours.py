"""Two tenants on one mesh: one attacks, the other one's calls all succeed and stay about as fast as alone. Prints a
table."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from tests.faults.attacks import ATTACKS, Attacker
from tests.harness.mesh import Mesh, invoke, running_mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

CALLS = 200
ATTACKING_THREADS = 4
SLOWER_AT_MOST = 3.0
# Below this a quotient of two latencies says more about the scheduler than about the attack.
NEGLIGIBLE_SECONDS = 0.05
VICTIM = "did:web:toolmesh.local:users:victim"
MALLORY = "did:web:toolmesh.local:users:mallory"


@dataclass(frozen=True)
class Measurement:
    """The latencies of the victim's calls, and the codes of those that failed."""

    seconds: list[float]
    failures: list[str]

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[-1]


@pytest.fixture(scope="module")
def own_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("neighbours")) as running:
        yield running


@pytest.fixture(scope="module")
def victim_token(own_mesh: Mesh) -> str:
    return own_mesh.token(sub=VICTIM, tenant="acme")


@pytest.fixture(scope="module")
def attacker_token(own_mesh: Mesh) -> str:
    return own_mesh.token(sub=MALLORY, tenant="mallory")


@pytest.fixture(scope="module")
def alone(own_mesh: Mesh, victim_token: str) -> Measurement:
    measure(own_mesh, victim_token)  # warm caches and workers
    return measure(own_mesh, victim_token)


def measure(mesh: Mesh, token: str) -> Measurement:
    """Call echo again and again as the victim, without a retry."""
    seconds, failures = [], []
    with mesh.edge_channel() as channel:
        for number in range(CALLS):
            began = time.monotonic()
            try:
                invoke(channel, "echo", b'{"text": "%d"}' % number, token=token)
            except grpc.RpcError as error:
                failures.append(error.code().name)
            seconds.append(time.monotonic() - began)
    return Measurement(seconds, failures)


def attack_until(stop: Any, mesh: Mesh, token: str, attack: Callable[[Attacker], None]) -> None:
    """Attack from several threads, in a process of its own and with the lowest priority: the attacker's computer is
    another one, and what counts is the work that it causes in the mesh."""
    os.nice(19)
    threads = [threading.Thread(target=_repeat, args=(stop, mesh, token, attack)) for _ in range(ATTACKING_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _repeat(stop: Any, mesh: Mesh, token: str, attack: Callable[[Attacker], None]) -> None:
    with mesh.edge_channel() as channel:
        attacker = Attacker(channel, mesh.url, token)
        while not stop.is_set():
            attack(attacker)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_costs_other_tenants_nothing(
    own_mesh: Mesh, victim_token: str, attacker_token: str, alone: Measurement, attack: Any, capsys: Any
) -> None:
    # Not forked: the threads of gRPC do not survive that.
    spawning = multiprocessing.get_context("spawn")
    stop = spawning.Event()
    target = (stop, Mesh(own_mesh.state, own_mesh.runtime), attacker_token, attack)
    attacking = spawning.Process(target=attack_until, args=target)
    attacking.start()
    try:
        attacked = measure(own_mesh, victim_token)
    finally:
        stop.set()
        attacking.join()
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{attack.__name__:<22} p99 alone {alone.p99 * 1e3:7.1f} ms   attacked {attacked.p99 * 1e3:7.1f} ms"
            f"   failed {len(attacked.failures)} of {CALLS}"
        )
    assert attacked.failures == []
    assert attacked.p99 <= max(SLOWER_AT_MOST * alone.p99, NEGLIGIBLE_SECONDS)
