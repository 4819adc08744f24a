"""The same echo, the same payload, the same generator: ours through Envoy as JSON-RPC, governed and audited, beside
what others serve it with.

Servers of MCP answer in two generations of the protocol, of which each is measured with the one it is faster in. What
a peer is tuned with
stands in its row's settings; what cannot be had here is left out with a line that says why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from bench.environment.machine import family
from bench.environment.mesh import Stage, listening
from bench.environment.virtualenvs import environment, python_from
from bench.load.calls import ENTRY, TEXT
from bench.load.generator import SPAN, Body, Target, in_turns, offer
from bench.load.mcp_calls import call_body, mcp_call
from bench.peers import contextforge
from bench.report.measurement import Row
from bench.suites.gateway import JSON, MCP
from tests.harness.stores import free_port

PEERS = Path(__file__).parents[1] / "peers"
FASTMCP, MCP_SDK = "FastMCP, nothing governed", "MCP Python SDK, nothing governed"
CONTEXTFORGE = "ContextForge, governed"
AGENT_GOVERNANCE = "agent-governance-toolkit, in process, nothing durable"
_UVICORN = "uvicorn with uvloop and httptools, 1 process; stateless HTTP with JSON answers"


def run(stage: Stage) -> Iterator[Row]:
    """Measure each peer, and ours in turns with the ones that targets name."""
    yield from if_it_can_be_had(MCP_SDK, lambda: _server(stage, MCP_SDK, "mcp_sdk", "mcp"))
    yield from if_it_can_be_had(FASTMCP, lambda: _server(stage, FASTMCP, "fastmcp", "fastmcp"))
    yield from if_it_can_be_had(CONTEXTFORGE, lambda: _contextforge(stage))
    yield from if_it_can_be_had(AGENT_GOVERNANCE, _agent_governance)


def if_it_can_be_had(case: str, measure: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Measure a peer; one that cannot be installed or started is left out, and says nothing about the others."""
    try:
        yield from measure()
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode() if isinstance(error.stderr, bytes) else error.stderr or ""
        why = said.strip().splitlines()[-1] if said.strip() else f"exit {error.returncode} of {error.cmd[0]}"
        yield Row("peers", f"{case} is left out: {why[:200]}")
    except (AssertionError, OSError) as error:
        # It did not start, or not in time.
        yield Row("peers", f"{case} is left out: {str(error)[:200] or type(error).__name__}")


def _server(stage: Stage, case: str, name: str, package: str) -> Iterator[Row]:
    """A server of MCP at each concurrency; where it counts, in turns with ours."""
    place, port = environment(f"peers/{name}", PEERS / f"{name}.lock"), free_port()
    told = {"version": _version(place, package), "settings": _UVICORN}
    with listening([str(place / "bin" / "python"), str(PEERS / f"{name}_server.py"), str(port)], port, name) as pid:
        measure = _faster(port, [pid], case, told)
        yield measure(1)
        theirs, ours = in_turns(lambda: measure(16), lambda: _ours(stage, 16), rounds=3, by="rps")
        yield theirs
        ours = replace(ours, case=f"{JSON}, beside {package}").against(theirs)
        yield ours.aimed("rps", ">=", 1) if case == FASTMCP else ours
        theirs, ours = in_turns(lambda: measure(16), lambda: _ours_as_mcp(stage, 16), rounds=3, by="rps")
        ours = replace(ours, case=f"{MCP}, beside {package}").against(theirs)
        yield ours.aimed("rps", ">=", 1) if case == FASTMCP else ours
        yield measure(64)


def _faster(port: int, pids: list[int], case: str, told: dict[str, Any]) -> Callable[[int], Row]:
    """Return how the peer is measured: in the generation of the protocol in which it answers more."""
    ways = {generation: _way(port, generation) for generation in ("2025-06-18", "2026-07-28")}

    def measure(generation: str, at: int, seconds: float = 2.5) -> Row:
        target, bodies = ways[generation]
        row = offer("peers", case, target, bodies, concurrency=at, pids=pids, seconds=seconds)
        return replace(row, more={**row.more, **told, "protocol": generation})

    best = max(ways, key=lambda generation: measure(generation, 16, 2.0).rps)
    return lambda at: measure(best, at)


def _way(port: int, generation: str) -> tuple[Target, list[Body]]:
    headers, bodies = mcp_call(generation)
    return Target(f"http://127.0.0.1:{port}", "/mcp", kind="json", headers=headers), bodies


def _ours(stage: Stage, at: int) -> Row:
    return offer("peers", JSON, stage.json_rpc(), ENTRY, concurrency=at, pids=stage.members(), seconds=2.5)


def _ours_as_mcp(stage: Stage, at: int) -> Row:
    target, bodies = stage.mcp()
    return offer("peers", MCP, target, bodies, concurrency=at, pids=stage.members(), seconds=2.5)


def _contextforge(stage: Stage) -> Iterator[Row]:
    python = python_from((3, 12))
    if python is None:
        yield Row("peers", "ContextForge is left out: it needs Python 3.12 or newer, and none was found")
        return
    place, port = environment("peers/contextforge", PEERS / "contextforge.lock", python), free_port()
    told = {"version": _version(place, "mcp-contextforge-gateway"), "settings": _CONTEXTFORGE}
    with ExitStack() as stack:
        echo = [sys.executable, str(PEERS / "http_echo.py"), str(port)]
        behind = stack.enter_context(listening(echo, port, "the echo behind ContextForge"))
        opened = contextforge.running(
            place, stage.folder / "contextforge", stage.database(), f"http://127.0.0.1:{port}/echo"
        )
        gateway = stack.enter_context(opened)

        def theirs(at: int) -> Row:
            pids, bodies = (
                {"contextforge": family(gateway.pid), "echo": [behind]},
                [call_body({"name": "echo", "arguments": TEXT})],
            )
            pids["postgres"] = stage.pids("postgres")
            row = offer("peers", CONTEXTFORGE, gateway.target(), bodies, concurrency=at, pids=pids, seconds=4.0)
            return replace(row, more={**row.more, **told})

        yield theirs(1)
        measured, ours = in_turns(lambda: theirs(16), lambda: _ours(stage, 16), rounds=1)
        yield measured
        yield replace(ours, case=f"{JSON}, beside ContextForge").against(measured).aimed("rps", ">=", 20)


_CONTEXTFORGE = (
    f"gunicorn, {contextforge.WORKERS} uvicorn workers; PostgreSQL and Redis; audit trail on; "
    "no rate limit, no admin pages; certificates read when needed (SSL_CERT_DIR); the echo as a REST tool; "
    "MCP over stateless HTTP with JSON answers"
)


def _agent_governance() -> Iterator[Row]:
    place = environment("peers/agent_governance", PEERS / "agent_governance.lock")
    command = [str(place / "bin" / "python"), str(PEERS / "agent_governance_loop.py"), str(4 * SPAN)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    figures = {name: round(value, 4) for name, value in found.items()}
    told = {
        "version": _version(place, "agent-governance-toolkit-core"),
        "settings": "govern(), one rule; audit in memory",
    }
    yield Row("peers", AGENT_GOVERNANCE, 1, **figures, more=told)


def _version(place: Path, package: str) -> str:
    [packages] = (place / "lib").glob("python3*/site-packages")
    found = {item.metadata["Name"].lower(): item.version for item in distributions(path=[str(packages)])}
    return found[package]
