"""The longest turn of each service's event loop under expensive inputs of the accepted sizes. Prints a table.

A turn is the processor time of the loop's thread between two passes through the selector, so a busy machine does not
lengthen it. Other calls wait for at most one turn. The second column is the longest time that a thread of the service
kept the interpreter's lock: a long hold stops the loop from another thread. The third is the longest run of the garbage
collector. Inputs are made from a seed; `LOOP_BUDGET_SEED` chooses another one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import pytest
from toolmesh.authz.v1 import policy_service_pb2_grpc as policy_rpc
from toolmesh.authz.v1 import token_service_pb2 as token_pb
from toolmesh.authz.v1 import token_service_pb2_grpc as token_rpc
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as executor_rpc

from tests.faults.load.budget_inputs import Inputs
from tests.faults.load.budget_services import TOOLS, connected, prepare
from tests.harness.loop_turns import SERVICES, LoopTurns
from tests.harness.mesh import Mesh, running_mesh
from tests.harness.tenancy.rpcs import call, rpcs
from tests.harness.tenancy.tenants import EVERY_SCOPE, Channels

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

LONGEST_TURN = 0.050
SEED = int(os.environ.get("LOOP_BUDGET_SEED", "25"))
ROUNDS = int(os.environ.get("LOOP_BUDGET_ROUNDS", "3"))
AGENT = "did:web:toolmesh.local:agents:mallory"
PATIENCE = 30.0
KINDS = ("turn", "hold", "collection")
HOOKS = [
    {"name": f"{phase}-all", "phase": phase, "tools": ["*"], "kind": "plugin", "timeout_ms": 20_000,
     "on_error": "open", "entry_point": "tests.harness.executors.passing_hook:let_pass"}
    for phase in ("pre", "post", "failure")
]  # fmt: skip


class Driver:
    """Sends inputs to a mesh and keeps the longest readings with the name of the input that caused them."""

    def __init__(self, mesh: Mesh, turns: LoopTurns, token: str) -> None:
        self.mesh, self._turns, self.token = mesh, turns, token
        self.reset()

    def reset(self) -> None:
        """Forget what was read so far."""
        self.longest = {service: {kind: (0.0, "", [""]) for kind in KINDS} for service in SERVICES}
        self.sent, self.answered = 0, set[str]()

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.token}")]

    def send(self, name: str, request: Callable[[], Any]) -> Any:
        """Send one input; a refusal is as good as an answer."""
        since = time.monotonic()
        answer = None
        with suppress(grpc.RpcError, httpx.HTTPError):
            answer = request()
            self.answered.add(name)
        self.sent += 1
        for service, kinds in self.longest.items():
            for kind, (most, _, _) in kinds.items():
                reading = self._turns.longest(service, kind, since)
                if reading.seconds > most:
                    kinds[kind] = (reading.seconds, name, reading.stack)
        return answer

    def table(self) -> str:
        """Return the longest turn and hold of each service."""
        lines = [f"seed {SEED}, {self.sent} inputs"]
        lines.append(f"{'service':<10}{'turn':>9}  {'hold':>9}  {'collection':>10}  longest turn caused by")
        for service, kinds in self.longest.items():
            turn, hold, collection = (kinds[kind] for kind in KINDS)
            figures = f"{turn[0] * 1e3:6.1f} ms {hold[0] * 1e3:7.1f} ms {collection[0] * 1e3:8.1f} ms"
            lines.append(f"{service:<10}{figures}  {turn[1]} (hold: {hold[1]})")
            lines += [f"{'':<10}{place}" for place in hold[2] if hold[0] > LONGEST_TURN and "/lib/python" not in place]
        return "\n".join(lines)


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> LoopTurns:
    return LoopTurns(tmp_path_factory.mktemp("turns"))


@pytest.fixture(scope="module")
def driver(turns: LoopTurns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("budget")
    (folder / "hooks.json").write_text(json.dumps(HOOKS))
    settings = {"TOOLMESH_HOOKS": str(folder / "hooks.json"), "TOOLMESH_EGRESS_INTERNAL": "127.0.0.0/8"}
    with running_mesh(folder / "state", **settings, **turns.environment) as mesh:
        yield Driver(mesh, turns, mesh.token(scopes=",".join(EVERY_SCOPE), tenant="mallory"))


def drive(driver: Driver, inputs: Inputs, edge: grpc.Channel, channels: Channels) -> None:
    """Send one round of everything."""
    metadata, mesh = cast("Any", driver.metadata), channels.mesh
    executor = executor_rpc.ExecutorServiceStub(edge)
    several = dict(inputs.arguments())
    for name, arguments in several.items():
        request = executor_pb.InvokeRequest(tool="echo", arguments=arguments)
        driver.send(name, lambda: executor.Invoke(request, metadata=metadata, timeout=PATIENCE))  # noqa: B023
        driver.send(f"POST {name}", lambda: mesh.post(_rpc(arguments), token=driver.token))  # noqa: B023
    for name, group in inputs.groups():
        driver.send(name, lambda: executor.InvokeGroup(group, metadata=metadata, timeout=PATIENCE))  # noqa: B023
    driver.send("batch", lambda: mesh.post(inputs.batch(), token=driver.token))
    delegating = token_rpc.TokenServiceStub(edge)
    for name, part in inputs.constraints():
        asked = token_pb.DelegateTokenRequest(agent=AGENT, part=part)
        issued = driver.send(name, lambda: delegating.DelegateToken(asked, metadata=metadata, timeout=PATIENCE))  # noqa: B023
        if issued is not None:
            _invoke_confined(driver, executor, name, issued.token, several)
    _send_to_operators(driver, inputs, channels)
    for rpc in rpcs():
        # The stream of records is measured by the calls above. Root tokens are not minted for callers.
        if rpc.method.client_streaming or rpc.method.name == "IssueToken":
            continue
        filled = inputs.message(rpc.method.input_type)
        stays_open = rpc.row.deadline is None
        driver.send(
            rpc.name,
            lambda: call(channels.to(rpc.service), rpc, filled, driver.token, timeout=0.5 if stays_open else 10),  # noqa: B023
        )


def _invoke_confined(driver: Driver, executor: Any, name: str, token: str, several: dict[str, bytes]) -> None:
    """Call with a derived token, whose constraints every call evaluates."""
    for kind in ("many texts", "long text", "small lists"):
        request = executor_pb.InvokeRequest(tool="echo", arguments=several[kind])
        metadata = [("authorization", f"Bearer {token}")]
        driver.send(
            f"{kind} within {name}",
            lambda: executor.Invoke(request, metadata=metadata, timeout=PATIENCE),  # noqa: B023
        )


def _send_to_operators(driver: Driver, inputs: Inputs, channels: Channels) -> None:
    policies = policy_rpc.PolicyServiceStub(channels.to("authz", "operator"))
    for name, policy in inputs.policies():
        driver.send(name, lambda: policies.ValidatePolicy(policy, timeout=PATIENCE))  # noqa: B023
    register = next(rpc for rpc in rpcs() if rpc.name == "RegistryService.RegisterTool")
    for name, manifest in inputs.manifests():
        request = register.request(manifest=manifest)
        channel = channels.to("registry", "operator")
        driver.send(name, lambda: call(channel, register, request, "", timeout=PATIENCE))  # noqa: B023


def _rpc(arguments: bytes) -> bytes:
    start = b'{"jsonrpc":"2.0","id":1,"method":"tools.invoke","params":{"tool":"echo","arguments":'
    return start + arguments + b"}}"


def test_no_input_holds_a_loop_for_longer_than_its_budget(driver: Driver, capsys: Any) -> None:
    inputs = Inputs(SEED)
    with driver.mesh.edge_channel() as edge, ExitStack() as stack:
        channels = Channels(driver.mesh, stack)
        drive(driver, Inputs(0), edge, channels)
        # Caches, lazily compiled validators and imports belong to the first requests of a process.
        driver.reset()
        for _ in range(ROUNDS):
            drive(driver, inputs, edge, channels)
    _require_budget(driver, capsys)


def test_no_answer_of_a_service_holds_a_loop_for_longer_than_its_budget(
    driver: Driver, tmp_path: Path, capsys: Any
) -> None:
    inputs, metadata = Inputs(SEED), cast("Any", driver.metadata)
    with driver.mesh.edge_channel() as edge, connected(driver.mesh, tmp_path):
        executor = executor_rpc.ExecutorServiceStub(edge)
        for number in range(2):
            answers = dict(inputs.answers())
            prepare(tmp_path, answers)
            for tool, name in product(TOOLS, answers):
                request = executor_pb.InvokeRequest(tool=tool, arguments=json.dumps({"text": name}).encode())
                driver.send(
                    f"{tool} {name}",
                    lambda: executor.Invoke(request, metadata=metadata, timeout=PATIENCE),  # noqa: B023
                )
            if number == 0:
                driver.reset()
    assert driver.answered >= {f"{tool} {name}" for tool in TOOLS for name in ("long-text", "numbers", "names")}
    _require_budget(driver, capsys)


def _require_budget(driver: Driver, capsys: Any) -> None:
    with capsys.disabled():
        print("\n" + driver.table())  # noqa: T201
    over = {name: kinds["turn"] for name, kinds in driver.longest.items() if kinds["turn"][0] > LONGEST_TURN}
    assert not over, json.dumps(over, indent=1)
