"""Two thousand keyed writes of volumes through the client library, while executors are killed at random.

Tokens are renewed between the attempts of a call, both executors serve every key, and a part of the calls is made at
both of them at once. Every write happens exactly once and every caller gets its result.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant
from toolmesh_sdk import Client, RetryPolicy, Tls, ToolmeshError
from toolmesh_sdk.result import Result

from services.executor.domain.volumes import tenant_folder_name
from tests.harness.executors.fleet import Fleet, fleet_of
from tests.harness.executors.replicas import ready
from tests.harness.mesh import ALICE, Mesh, cli, running_mesh
from tests.harness.stores import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(5400)]

WRITES, TENANTS, WRITERS = 2_000, 40, 6
TOKENS_PER_TENANT = 3
# Every so many writes is made at both executors at once.
DOUBLE = 4
CALL_SECONDS = 600.0
PATIENT = RetryPolicy(attempts=100_000, initial=0.05, longest=0.5)
TOOL = "ledger.append_entry"
MANIFEST: dict[str, Any] = {
    "schema_version": "0.2.0",
    "tool_id": "append_entry",
    "namespace": "ledger",
    "version": "1.0.0",
    "title": "Append an entry",
    "description": "Appends one entry to a file of the volume `ledger`. A second run appends a second one.",
    "provider": "ledger",
    "kind": "file_operation",
    "protocol": "native",
    "input": {
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "pattern": "^[a-z0-9-]+$"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        "examples": [{"arguments": {"name": "first"}}],
    },
    "output": {"schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    "interface": {"safety": {"closed_world": True, "sandbox_tier": "process", "concurrency_safe": True}},
    "execution": {
        "runner": "command",
        # Appends the arguments to the file, and returns them.
        "entry_point": json.dumps(["/usr/bin/tee", "-a", "/volumes/ledger/{name}"]),
        "timeout_class": "long_running",
        "timeout_default": "60s",
        "resource_limits": {"memory": "64Mi", "ephemeral_storage": "4Mi", "max_processes": 8},
        "network_policy": {"deny_all_egress": True},
        "access_tier": "files",
    },
    "permission": {
        "required_permissions": ["filesystem:write:ledger"],
        "required_scopes": ["tools:call"],
        "credential_propagation": "none",
    },
    "mutation_class": "write_reversible",
    "side_effects": [
        {"resource": "file:ledger/*", "operation": "create"},
        {"resource": "file:ledger/*", "operation": "update"},
    ],
    "idempotency": {"mode": "key_required", "uncertain_outcome": "fail"},
    "compensation_tool": "tools/ledger.append_entry",
    "observability": {"audit_detail": "summary"},
}


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def own_mesh(tmp_path_factory: pytest.TempPathFactory, volume: Path) -> Iterator[Mesh]:
    folder = tmp_path_factory.mktemp("keyed")
    with running_mesh(folder / "state", TOOLMESH_VOLUMES=f"ledger={volume}") as mesh:
        manifest = folder / "append_entry.json"
        manifest.write_text(json.dumps(MANIFEST))
        cli("tools", "register", str(manifest), state=mesh.state)
        yield mesh


@pytest.fixture(scope="module")
def fleet(own_mesh: Mesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    logs = tmp_path_factory.mktemp("logs")
    with fleet_of(own_mesh, "services.executor", logs, 2, TOOLMESH_CLAIM_LEASE_SECONDS="1.5") as running:
        yield running


def renewed_tokens(stub: authz_rpc.AuthzServiceStub, tenant: str) -> Callable[[], str]:
    """Return a token function: every attempt of a call has another token of the same subject."""
    request = authz_pb.IssueTokenRequest(
        subject=ALICE, tenant=tenant, tools=[ToolGrant(tool="*")], scopes=["tools:call"], trust_level=90
    )
    tokens = [stub.IssueToken(request, timeout=60).token for _ in range(TOKENS_PER_TENANT)]
    turns, lock = itertools.cycle(tokens), threading.Lock()

    def renew() -> str:
        with lock:
            return next(turns)

    return renew


@dataclass
class Writers:
    """Clients of every tenant at every executor, and what became of their calls."""

    mesh: Mesh
    fleet: Fleet
    clients: dict[tuple[int, int], Client] = field(default_factory=dict)
    results: dict[str, list[Result]] = field(default_factory=dict)
    failures: list[tuple[str, ToolmeshError]] = field(default_factory=list)

    def open(self) -> None:
        runtime = self.mesh.runtime
        pair = runtime["orchestrator"]
        tls = Tls(Path(runtime["ca"]), Path(pair["cert"]), Path(pair["key"]), server_name="executor")
        with self.mesh.direct_channel("authz", "operator") as channel:
            stub = authz_rpc.AuthzServiceStub(channel)
            tokens = [renewed_tokens(stub, f"tenant-{tenant}") for tenant in range(TENANTS)]
        for tenant, token in enumerate(tokens):
            for number, member in enumerate(self.fleet.members):
                target = f"127.0.0.1:{member.port}"
                self.clients[tenant, number] = Client(target, token=token, tls=tls, timeout=CALL_SECONDS, retry=PATIENT)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    def write(self, number: int, members: list[int]) -> None:
        """Make one write with one key, at one executor or at both at once."""
        tenant, key = number % TENANTS, f"entry-{number}"

        def call(member: int) -> Result | None:
            try:
                return self.clients[tenant, member].call(TOOL, {"name": key}, idempotency_key=key)
            except ToolmeshError as error:
                self.failures.append((key, error))
                return None

        with ThreadPoolExecutor(len(members)) as pool:
            self.results[key] = [result for result in pool.map(call, members) if result is not None]


class Killer(threading.Thread):
    """Kills an executor at random moments and starts it again at once.

    Both are ready before: executors that are killed while they start never serve a call.
    """

    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._fleet, self._chance, self._over = fleet, chance, threading.Event()
        self.kills = 0

    def run(self) -> None:
        while not self._over.wait(self._chance.uniform(2.0, 10.0)):
            if not all(ready(member.ops) for member in self._fleet.members):
                continue
            self._fleet.kill(self._chance.choice(self._fleet.members))
            self._fleet.revive()
            self.kills += 1

    def end(self) -> None:
        self._over.set()
        self.join()


def entries(volume: Path, number: int) -> int:
    """Return how often a write happened."""
    path = volume / tenant_folder_name(f"tenant-{number % TENANTS}") / f"entry-{number}"
    return path.read_text().count('"name"') if path.exists() else 0


def missing_records(mesh: Mesh, results: list[Result]) -> list[str]:
    """Return the evidence that the log does not have."""
    names = {name for result in results for name in result.evidence_refs}
    missing = []
    with mesh.direct_channel("audit", "operator") as channel:
        stub = audit_rpc.AuditServiceStub(channel)
        for name in names:
            try:
                stub.GetRecord(audit_pb.GetRecordRequest(name=name), timeout=30)
            except grpc.RpcError:
                missing.append(name)
    return missing


def test_two_thousand_keyed_writes_happen_once_while_executors_are_killed(
    own_mesh: Mesh, fleet: Fleet, volume: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, writers, began = random.Random(26), Writers(own_mesh, fleet), time.monotonic()
    writers.open()
    places = [[0, 1] if number % DOUBLE == 0 else [chance.randrange(2)] for number in range(WRITES)]
    # Both executors know the tool before the first kill.
    writers.write(WRITES, [0, 1])
    killer = Killer(fleet, chance)
    killer.start()
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(writers.write, range(WRITES), places))
    finally:
        killer.end()
        writers.close()
    counts = Counter(entries(volume, number) for number in range(WRITES))
    codes = Counter(error.code for _, error in writers.failures)
    every = [result for results in writers.results.values() for result in results]
    replayed = [result for result in every if result.replayed]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{WRITES} writes, {killer.kills} kills, {time.monotonic() - began:.0f} s: effects {dict(counts)},"
            f" failures {dict(codes)}, {len(every)} results, {len(replayed)} replayed\n"
        )
    assert (counts, codes) == (Counter({1: WRITES}), Counter())
    assert killer.kills >= 20
    for key, results in writers.results.items():
        assert {json.dumps(result.content) for result in results} == {json.dumps({"name": key})}
        assert len({result.result_id for result in results}) == 1
    wait_until(lambda: not missing_records(own_mesh, replayed), "the evidence of every replay", 60)
