"""Two tenants on one mesh: one attacks, the other one's calls all succeed and stay about as fast as alone. Prints a
table.

How it is measured: the mesh is warm, and stretches of calls without and with the attack alternate, so that whatever
else happens on the machine meets both alike; the 99th percentiles are those of all stretches together. The attacker is
a process of its own with the lowest priority: on its own computer, its processor time would cost the mesh nothing. All
that it makes the mesh do has the usual priority, and is what the victim shares the machine with. The last column is
the processor time of the whole mesh for each second of the attack: an attack that costs the victim latency costs it
there.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.faults.load.attacks import ATTACKS, Attacker
from tests.harness.mesh import Mesh, invoke, running_mesh
from tests.harness.stores import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

# Calls in one stretch, and how often the stretches alternate: the 99th percentile of 600 calls is the sixth slowest.
CALLS, STRETCHES = 100, 6
WARM_UP_CALLS = 200
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


@pytest.fixture(scope="module", autouse=True)
def warm(own_mesh: Mesh, victim_token: str) -> None:
    """Fill caches and start workers."""
    measure(own_mesh, victim_token, WARM_UP_CALLS)


def measure(mesh: Mesh, token: str, calls: int = CALLS) -> Measurement:
    """Call echo again and again as the victim, without a retry."""
    seconds, failures = [], []
    with mesh.edge_channel() as channel:
        for number in range(calls):
            began = time.monotonic()
            try:
                invoke(channel, "echo", b'{"text": "%d"}' % number, token=token)
            except grpc.RpcError as error:
                failures.append(error.code().name)
            seconds.append(time.monotonic() - began)
    return Measurement(seconds, failures)


def joined(measurements: list[Measurement]) -> Measurement:
    """Return the calls of several stretches as one measurement."""
    return Measurement(
        [second for each in measurements for second in each.seconds],
        [failure for each in measurements for failure in each.failures],
    )


def mesh_cpu_seconds(pids: list[int]) -> float:
    """Return the processor time of the mesh's processes so far."""
    ticks = 0
    for pid in pids:
        # The name before it may hold anything but stands in brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def attack_until(
    stop: Any, pause: Any, attacking: Any, mesh: Mesh, token: str, attack: Callable[[Attacker], None]
) -> None:
    """Attack from several threads until `stop`, except while `pause` is set."""
    os.nice(19)
    arguments = (stop, pause, attacking, mesh, token, attack)
    threads = [threading.Thread(target=_repeat, args=arguments) for _ in range(ATTACKING_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _repeat(stop: Any, pause: Any, attacking: Any, mesh: Mesh, token: str, attack: Callable[[Attacker], None]) -> None:
    with mesh.edge_channel() as channel:
        attacker = Attacker(channel, mesh.url, token)
        while not stop.is_set():
            with attacking.get_lock():
                attacking.value += 1
            while not pause.is_set():
                attack(attacker)
            with attacking.get_lock():
                attacking.value -= 1
            while pause.is_set() and not stop.is_set():
                time.sleep(0.02)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_costs_other_tenants_nothing(
    own_mesh: Mesh, victim_token: str, attacker_token: str, attack: Any, capsys: Any
) -> None:
    # Not forked: the threads of gRPC do not survive that.
    spawning = multiprocessing.get_context("spawn")
    # How many threads attack; a thread ends its present step before it pauses.
    stop, pause, threads = spawning.Event(), spawning.Event(), spawning.Value("i")
    target = (stop, pause, threads, Mesh(own_mesh.state, own_mesh.runtime), attacker_token, attack)
    attacking = spawning.Process(target=attack_until, args=target)
    pids = [int(part["pid"]) for part in own_mesh.status()["services"]]
    without, attacked = list[Measurement](), list[Measurement]()
    used = lasted = 0.0
    attacking.start()
    try:
        for _ in range(STRETCHES):
            pause.clear()
            wait_until(lambda: threads.value == ATTACKING_THREADS, "the attack", 60)
            began, before = time.monotonic(), mesh_cpu_seconds(pids)
            attacked.append(measure(own_mesh, victim_token))
            lasted, used = lasted + time.monotonic() - began, used + mesh_cpu_seconds(pids) - before
            pause.set()
            wait_until(lambda: threads.value == 0, "the end of the attack", 60)
            without.append(measure(own_mesh, victim_token))
    finally:
        stop.set()
        pause.set()
        attacking.join()
    alone, during = joined(without), joined(attacked)
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{attack.__name__:<22} p99 alone {alone.p99 * 1e3:7.1f} ms   attacked {during.p99 * 1e3:7.1f} ms"
            f"   x{during.p99 / alone.p99:4.1f}   failed {len(during.failures)} of {len(during.seconds)}"
            f"   mesh {used / lasted:4.2f} cpu/s"
        )
    assert during.failures == []
    assert during.p99 <= max(SLOWER_AT_MOST * alone.p99, NEGLIGIBLE_SECONDS)
