"""A gateway whose executor is the bare echo: what it costs by itself is what it does beside parsing, one call and
answering."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.environment.mesh import Stage, is_listening, served
from bench.load.generator import Target
from tests.harness.stores import free_port, wait_until


@dataclass(frozen=True)
class LoneGateway:
    """The gateway and the floor beside it, both without Envoy, with the same mutual TLS and the same echo behind."""

    stage: Stage
    port: int
    pid: int
    floor_port: int
    floor_pid: int

    def target(self, path: str, headers: dict[str, str]) -> Target:
        """Return a path of the gateway as a target, as the edge calls it."""
        sent = {**headers, "authorization": f"Bearer {self.stage.token}", "content-type": "application/json"}
        return self._target(self.port, path, sent)

    def floor(self) -> Target:
        """Return the ASGI server with nothing of the gateway as a target."""
        return self._target(self.floor_port, "/rpc", {"content-type": "application/json"})

    def _target(self, port: int, path: str, headers: dict[str, str]) -> Target:
        address = f"https://127.0.0.1:{port}"
        return Target(
            address, path, kind="json", headers=headers, pki=self.stage.pki, authority="gateway", identity="edge"
        )


@contextmanager
def lone_gateway(stage: Stage) -> Iterator[LoneGateway]:
    """Run a second gateway with the settings of the mesh's own, but for its executor, and the floor."""
    process = Path("/proc") / str(stage.parts["gateway"][1])
    command = process.joinpath("cmdline").read_text().split("\0")[:-1]
    pairs = (pair.partition("=") for pair in process.joinpath("environ").read_text().split("\0") if pair)
    port, floor_port = free_port(), free_port()
    environment = {name: value for name, _, value in pairs} | {
        "TOOLMESH_LISTEN": f"127.0.0.1:{port}",
        "TOOLMESH_OPS_LISTEN": "127.0.0.1:0",
        "TOOLMESH_PUBLIC_ORIGINS": f"https://127.0.0.1:{port}",
        "TOOLMESH_EXECUTOR_ADDRESS": f"127.0.0.1:{stage.floor_port}",
    }
    log = (stage.folder / "lone_gateway.log").open("wb")
    own = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=(process / "cwd").readlink())
    try:
        wait_until(lambda: own.poll() is not None or is_listening(port), "the start of the gateway", 60)
        assert own.poll() is None, f"the gateway ended at once; see {log.name}"
        with served("bench.floors.asgi_bridge", floor_port, str(stage.floor_port), str(stage.pki)) as floor_pid:
            yield LoneGateway(stage, port, own.pid, floor_port, floor_pid)
    finally:
        own.terminate()
        own.wait()
        log.close()
