"""A whole mesh of real processes, driven the way a person drives it: through the command line and the network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as executor_rpc
from toolmesh_sdk.admin import mint_token
from toolmesh_sdk.cli.inputs.options import split_list
from toolmesh_sdk.cli.inputs.timestamps import parse_seconds
from toolmesh_sdk.cli.inputs.token_bounds import build_bounds

from localmesh.state.pki import Pki
from localmesh.state.state import State
from tests.harness.cli_program import run_command
from tests.harness.stores import wait_until

TOOLMESH = str(Path(sys.executable).parent / "toolmesh")
ALICE = "did:web:toolmesh.local:users:alice"


def cli(
    *arguments: str, state: Path | None = None, check: bool = True, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line and return what it printed. One that hangs ends before the test's own time limit."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOOLMESH_")} | environ
    if state is not None:
        environment["TOOLMESH_STATE"] = str(state)
    done = run_command(list(arguments), environment, timeout=500)
    assert not check or done.returncode == 0, (
        f"{arguments}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    )
    return done


@dataclass
class Mesh:
    """A running mesh."""

    state: Path
    runtime: dict[str, Any]
    _clients: list[httpx.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return str(self.runtime["gateway"]["url"])

    @property
    def edge(self) -> str:
        return str(self.runtime["grpc"]["address"])

    def status(self) -> dict[str, Any]:
        """Ask for the state of the mesh as of now, its readiness and memory included."""
        return json.loads(cli("status", "--json", state=self.state).stdout)  # type: ignore[no-any-return]

    def part(self, name: str) -> dict[str, Any]:
        """Return what the runner has written down of one part, without the cost of a process."""
        return next(part for part in State(self.state).runtime()["services"] if part["name"] == name)

    def token(
        self,
        *,
        tools: str = "*",
        scopes: str = "tools:call,tools:read,audit:read",
        sub: str = ALICE,
        ttl: str = "1h",
        tenant: str = "",
        groups: str | None = None,
        trust: str = "0",
        audience: str | None = None,
        **bounds: Any,
    ) -> str:
        """Mint a token with the options of `toolmesh token mint`."""
        return mint_token(
            State(self.state).runtime(),
            timeout=60,
            sub=sub,
            tools=split_list(tools),
            scopes=split_list(scopes),
            ttl_seconds=parse_seconds(ttl, "--ttl"),
            tenant=tenant,
            groups=split_list(groups),
            trust=int(trust),
            audience=split_list(audience),
            bounds=build_bounds(**bounds),
        )

    def store_secret(self, value: str, *arguments: str) -> None:
        """Run `toolmesh secrets set` or `rotate` with the value on its standard input, and see that it prints none."""
        arguments = ("secrets", *arguments, "--state", str(self.state))
        done = run_command(list(arguments), dict(os.environ), timeout=500, given=value)
        assert done.returncode == 0, done.stderr
        assert value not in done.stdout + done.stderr

    def rpc(
        self, method: str, params: Any, *, token: str = "", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Make one JSON-RPC call through the edge."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.post(json.dumps(body).encode(), token=token, headers=headers)

    def post(self, body: bytes, *, token: str = "", headers: dict[str, str] | None = None) -> httpx.Response:
        """Post any bytes to /rpc through the edge."""
        sent = {"content-type": "application/json", **(headers or {})}
        if token:
            sent["authorization"] = f"Bearer {token}"
        return httpx.post(f"{self.url}/rpc", content=body, headers=sent, timeout=30)

    @contextmanager
    def edge_channel(self) -> Iterator[grpc.Channel]:
        """A plain gRPC channel to the edge, as an outside orchestrator has it."""
        with grpc.insecure_channel(self.edge) as channel:
            yield channel

    @contextmanager
    def direct_channel(self, service: str, identity: str | None = "orchestrator") -> Iterator[grpc.Channel]:
        """A channel straight to a service, or to one of its replicas such as `executor-2`, with the certificate of
        `identity`, or without any."""
        ca = Path(self.runtime["ca"]).read_bytes()
        if identity is None:
            credentials = grpc.ssl_channel_credentials(ca)
        else:
            files = Pki(Path(self.runtime["ca"]).parent).of(identity)
            pair = (files.key.read_bytes(), files.cert.read_bytes())
            credentials = grpc.ssl_channel_credentials(ca, *pair)
        options = [("grpc.ssl_target_name_override", service.partition("-")[0])]
        with grpc.secure_channel(self.part(service)["address"], credentials, options=options) as channel:
            yield channel

    def logs(self, part: str) -> list[dict[str, Any]]:
        """Return the JSON lines that a part has logged."""
        found = []
        for line in (self.state / "logs" / f"{part}.log").read_text(errors="replace").splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
        return found

    def calls(self, part: str, trace: str, *, within: float = 10.0) -> list[dict[str, Any]]:
        """Return the lines of the calls that a part served in a trace, waiting for the first: lines are written in
        company."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.logs(part) if line.get("trace_id") == trace and line.get("event") == "call"]

        with suppress(AssertionError):
            wait_until(found, f"a call in the log of {part}", within)
        return found()

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Signal a part; return the pid that it had."""
        pid = int(self.part(name)["pid"])
        os.kill(pid, number)
        return pid

    def wait_ready(self, name: str, other_than: int) -> None:
        """Wait until a part runs again under another pid."""

        def back() -> bool:
            part = self.part(name)
            return part["ready"] and part["pid"] != other_than

        wait_until(back, f"the return of {name}", 240)


def invoke(channel: grpc.Channel, tool: str, arguments: bytes = b"{}", *, token: str = "", **options: Any) -> Any:
    """Call Invoke and return its response."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    metadata += options.pop("metadata", [])
    request = executor_pb.InvokeRequest(tool=tool, arguments=arguments, **options.pop("request", {}))
    return executor_rpc.ExecutorServiceStub(channel).Invoke(
        request,
        metadata=metadata,  # type: ignore[arg-type]
        timeout=options.get("timeout", 15),  # type: ignore[arg-type]
    )


@contextmanager
def running_mesh(state: Path, *arguments: str, **environ: str) -> Iterator[Mesh]:
    """Start a mesh, with these options and variables, hand it over ready, and stop it."""
    done = cli("up", "--detach", "--state", str(state), "--json", *arguments, **environ)  # type: ignore[arg-type]
    try:
        yield Mesh(state, json.loads(done.stdout))
    finally:
        cli("down", "--state", str(state))
