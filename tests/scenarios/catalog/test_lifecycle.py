"""A tool's life while calls flow: what an operator says reaches every caller at once, and can be taken back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2
from toolmesh.common.v1 import error_reason_pb2
from toolmesh.registry.v1 import lifecycle_service_pb2 as pb
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as rpc
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb
from toolmesh.registry.v1 import registry_service_pb2_grpc as registry_rpc
from toolmesh.registry.v1 import trust_service_pb2 as trust_pb
from toolmesh.registry.v1 import trust_service_pb2_grpc as trust_rpc

from tests.harness.mesh import Mesh, cli, invoke
from tests.harness.stores import wait_until

TOOL = "clock_now"
RUNS, NOTICE = "runs", "runs, with a notice"


def outcome(channel: grpc.Channel, token: str) -> str:
    """Call the tool: whether it ran, with or without a notice, or the code and the state that refused."""
    try:
        result = invoke(channel, TOOL, token=token).result
    except grpc.RpcError as error:
        status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])  # type: ignore[arg-type, index]
        envelope = error_reason_pb2.ErrorEnvelope()
        assert any(detail.Unpack(envelope) for detail in status.details)
        return f"{envelope.code} {envelope.metadata.get('state', '')}".strip()
    return NOTICE if result.HasField("deprecation") else RUNS


@dataclass
class Flow:
    """One caller who calls without a pause, and what became of every call."""

    outcomes: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self, channel: grpc.Channel, token: str) -> None:
        while not self.stop.is_set():
            self.outcomes.append(outcome(channel, token))

    def reaches(self, expected: str) -> None:
        """Wait until calls end like this."""
        wait_until(lambda: self.outcomes[-1:] == [expected], f"{expected!r} (last: {self.outcomes[-1:]})", 10)

    def changes(self) -> list[str]:
        """The outcomes, with what repeats told once."""
        return [now for before, now in zip([None, *self.outcomes], self.outcomes, strict=False) if before != now]


@contextmanager
def flowing(mesh: Mesh) -> Iterator[Flow]:
    flow = Flow()
    with mesh.edge_channel() as channel:
        worker = threading.Thread(target=flow.work, args=(channel, mesh.token()))
        worker.start()
        try:
            flow.reaches(RUNS)
            yield flow
        finally:
            flow.stop.set()
            worker.join()


@pytest.fixture
def version(mesh: Mesh) -> Iterator[str]:
    """The name of the version that is called; it is left as it was found."""
    with mesh.direct_channel("registry", "operator") as channel:
        stub = registry_rpc.RegistryServiceStub(channel)

        def read() -> Any:
            return stub.GetTool(registry_pb.GetToolRequest(name=TOOL), timeout=10).versions[0]

        before = read()
        yield str(before.name)
        assert read().state == before.state


def operator(channel: grpc.Channel, name: str) -> Callable[..., Any]:
    """Return a function that does a verb as the operator."""
    stub = rpc.LifecycleServiceStub(channel)

    def verb(what: str, **more: Any) -> Any:
        request = getattr(pb, f"{what}Request")(name=name, reason="a scenario", **more)
        return getattr(stub, what)(request, timeout=10)

    return verb


def test_every_state_reaches_a_caller_who_never_stops_calling(mesh: Mesh, version: str) -> None:
    walk = [
        ("DeprecateVersion", NOTICE),
        ("QuarantineTool", "E3107 quarantined"),
        ("ReleaseTool", NOTICE),
        ("DisableTool", "E3107 disabled"),
        ("EnableTool", NOTICE),
        ("MarkRequiresSetup", "E3107 requires_setup"),
        ("CompleteSetup", NOTICE),
        ("SunsetVersion", "E3104"),
        ("UndeprecateVersion", RUNS),
    ]
    with mesh.direct_channel("registry", "operator") as channel, flowing(mesh) as flow:
        verb = operator(channel, version)
        for what, expected in walk:
            verb(what)
            flow.reaches(expected)
    # Nothing else ever happened: no call failed otherwise, and none ran after a refusal had begun.
    assert flow.changes() == [RUNS, *(expected for _, expected in walk)]


def test_a_revoked_tool_runs_nowhere_until_the_operator_reinstates_it(mesh: Mesh, version: str) -> None:
    with mesh.direct_channel("registry", "operator") as channel, flowing(mesh) as flow:
        stub = trust_rpc.TrustServiceStub(channel)
        stub.RevokeTool(trust_pb.RevokeToolRequest(name=TOOL, reason="a scenario"), timeout=10)
        flow.reaches("E3107 quarantined")
        with pytest.raises(grpc.RpcError) as caught:
            operator(channel, version)("ReleaseTool")
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        stub.ReinstateTool(trust_pb.ReinstateToolRequest(name=TOOL, reason="a scenario"), timeout=10)
        flow.reaches(RUNS)
    assert flow.changes() == [RUNS, "E3107 quarantined", RUNS]


def test_a_person_does_the_same_with_the_command_line(mesh: Mesh, version: str) -> None:
    state = mesh.state
    named = version.removeprefix("tools/").replace("/versions/", "@")

    def called() -> int:
        return cli("call", TOOL, state=state, check=False).returncode

    cli("tools", "disable", named, "--reason", "a scenario", state=state)
    try:
        wait_until(lambda: called() == 1, "a refusal")
    finally:
        cli("tools", "enable", named, state=state)
    wait_until(lambda: called() == 0, "a call")
    history = cli("tools", "history", named, "-n", "2", state=state).stdout
    assert [line.split()[2] for line in history.splitlines()[1:]] == ["enable", "disable"]
    shown = cli("tools", "trust", TOOL, state=state).stdout
    assert len([line for line in shown.splitlines() if line.startswith(("reliability", "usage volume"))]) == 2
    without = cli("tools", "disable", named, "--reason", "x", "--token", mesh.token(), state=state, check=False)
    assert without.returncode == 4
