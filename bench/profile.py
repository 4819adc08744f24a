"""A flame graph of each service under load: what its time goes to, by function, as SVG.

The load is what the service is there for; Python's frames are sampled from outside, so the service itself is as it
always is.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from toolmesh.approval.v1 import approval_service_pb2 as approval
from toolmesh.registry.v1 import discovery_service_pb2 as discovery

from bench.environment.mesh import Stage, stage
from bench.environment.virtualenvs import environment
from bench.load.calls import ENTRY, check
from bench.load.generator import LOCK, STAMP, Body, Target, offer, program

RESULTS = Path(__file__).parent / "results" / "profiles"
SECONDS, RATE, CALLERS = 10, 200, 16


@dataclass(frozen=True)
class Load:
    """What a service is kept busy with."""

    target: Target
    bodies: list[Body]


def main() -> None:
    """Write a flame graph for each service that was named, or for all."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("services", nargs="*", metavar="SERVICE", help="which to look at; all if none is named")
    wanted = parser.parse_args().services
    program()
    spy = environment("tools", LOCK) / "bin" / "py-spy"
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as standing:
        loads = _loads(standing)
        unknown = [name for name in wanted if name not in loads]
        if unknown:
            parser.error(f"no such service: {', '.join(unknown)}; there are {', '.join(loads)}")
        _allowed(spy, standing)
        for name in wanted or loads:
            print(f"{name}: {_profile(spy, standing, name, loads[name])}", flush=True)


def _loads(standing: Stage) -> Mapping[str, Load]:
    calls = Load(standing.json_rpc(), ENTRY)
    search = Body(discovery.SearchToolsRequest(query="count the words of a text").SerializeToString())
    tickets = Body(approval.ListTicketsRequest().SerializeToString())
    return {
        "gateway": calls,
        "executor": calls,
        "audit": calls,
        # Equal decisions are cached; these all differ.
        "authz": Load(standing.policy(), [check(STAMP)]),
        "registry": Load(standing.service("registry", "/toolmesh.registry.v1.DiscoveryService/SearchTools"), [search]),
        "approval": Load(standing.peer("approval", "/toolmesh.approval.v1.ApprovalService/ListTickets"), [tickets]),
    }


def _allowed(spy: Path, standing: Stage) -> None:
    """End with a clear word where one process may not look into another."""
    pid = standing.parts["gateway"][1]
    done = subprocess.run([str(spy), "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            "py-spy may not read other processes: it needs root, SYS_PTRACE, or kernel.yama.ptrace_scope=0\n"
            + done.stderr.strip()
        )


def _profile(spy: Path, standing: Stage, name: str, load: Load) -> Path:
    """Sample a service while it works; return where the graph is."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    graph = RESULTS / f"{name}.svg"
    # The graph's title is this line, so it names nothing of where it was made.
    command = [
        "py-spy",
        "record",
        "--nonblocking",
        "-r",
        str(RATE),
        "-d",
        str(SECONDS),
        "-f",
        "flamegraph",
        "-o",
        graph.name,
    ]
    with ThreadPoolExecutor(1) as pool:
        # It begins before the sampling and ends after it.
        seconds = SECONDS + 2
        working = pool.submit(offer, "profile", name, load.target, load.bodies, concurrency=CALLERS, seconds=seconds)
        pid = str(standing.parts[name][1])
        command += ["--pid", pid]
        done = subprocess.run(command, executable=spy, cwd=RESULTS, capture_output=True, text=True, check=False)
        row = working.result()
    if done.returncode:
        raise RuntimeError(f"py-spy could not record {name}: {done.stderr.strip()}")
    print(f"  {row.rps:,.0f} calls a second", flush=True)
    return graph


if __name__ == "__main__":
    main()
