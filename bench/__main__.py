"""Measure what a governed call costs against a bare one, in one run on one machine. Absolute figures mean little; ratios do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.harness.mesh import Mesh, running_mesh
from tests.harness.stores import free_port, wait_until

RESULTS = Path(__file__).parent / "results" / "latest.json"
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: list[int]) -> float:
    """Return the processor time that the processes have used so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def measure(case: str, way: str, target: str, concurrency: int, pids: list[int], **options: str) -> dict[str, Any]:
    extra = [part for key, value in options.items() for part in (f"--{key}", value)]
    before = cpu_seconds(pids)
    command = [sys.executable, "-m", "bench.load", way, target, "--concurrency", str(concurrency), *extra]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    seconds = cpu_seconds(pids) - before
    measured["cpu_us_per_call"] = round(seconds / max(1, measured["rps"] * 4.8) * 1e6)
    return {"suite": "call", "case": case, "concurrency": concurrency, **measured}


def run(mesh: Mesh) -> list[dict[str, Any]]:
    """Run every case at each concurrency, the floor beside what is measured against it."""
    pki, token, port = str(mesh.state / "pki"), mesh.token(ttl="1h"), free_port()
    parts = {part["name"]: part for part in mesh.status()["services"]}
    bare = subprocess.Popen([sys.executable, "-m", "bench.floor", str(port), pki])
    wait_until(lambda: _listens(port), "the floor's start")
    everything = [int(part["pid"]) for part in parts.values()]
    rows = []
    try:
        for concurrency in (1, 16, 64):
            floor = measure("bare grpc.aio echo", "direct", f"127.0.0.1:{port}", concurrency, [bare.pid], pki=pki)
            governed = [
                measure(
                    "governed, gRPC direct",
                    "direct",
                    parts["executor"]["address"],
                    concurrency,
                    everything,
                    pki=pki,
                    token=token,
                ),
                measure(
                    "governed, gRPC through Envoy", "edge", mesh.edge, concurrency, everything, pki=pki, token=token
                ),
                measure("governed, JSON-RPC through Envoy", "jsonrpc", mesh.url, concurrency, everything, token=token),
            ]
            for row in governed:
                row["ratio"] = {
                    "to": floor["case"],
                    "rps": round(row["rps"] / floor["rps"], 3),
                    "p50": round(row["p50_ms"] / floor["p50_ms"], 2),
                }
            rows += [floor, *governed]
    finally:
        bare.terminate()
        bare.wait()
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_mesh(Path(folder) / "state") as mesh:
        rows = run(mesh)
    RESULTS.write_text(json.dumps(rows, indent=1))
    print(f"{'case':34} {'c':>3} {'rps':>8} {'p50 ms':>8} {'p99 ms':>8} {'cpu us':>7} {'rps ratio':>9}")
    for row in rows:
        ratio = row.get("ratio", {}).get("rps", "")
        print(
            f"{row['case']:34} {row['concurrency']:>3} {row['rps']:>8} {row['p50_ms']:>8} {row['p99_ms']:>8} {row['cpu_us_per_call']:>7} {ratio:>9}"
        )


if __name__ == "__main__":
    main()
