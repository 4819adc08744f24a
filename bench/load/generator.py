"""The load generator: a small compiled program, built once from the sources beside this file.

A generator in Python would take as much processor time as what it measures. The compiler comes from a wheel into an
environment of its own, pinned with hashes, so that nothing needs to be installed by hand.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.environment.machine import cpu_seconds
from bench.environment.virtualenvs import CACHE, environment
from bench.report.measurement import Row

SOURCES = Path(__file__).parents[1] / "loadgen"
LOCK = Path(__file__).parents[1] / "requirements.lock"
# How long everything is measured, as a multiple of what a full run takes: half as long says half as surely.
SPAN = float(os.environ.get("BENCH_SPAN", "1"))
# As long as a key may be, so that a number fits; see bodies.go.
STAMP = "00000000-stamp-stamp-stamp-000000000000"


@dataclass(frozen=True)
class Body:
    """What a call sends. Where it holds STAMP, each call sends a number of its own."""

    payload: bytes
    weight: int = 1

    def described(self) -> dict[str, Any]:
        stamp = STAMP if STAMP.encode() in self.payload else ""
        return {"weight": self.weight, "body": base64.b64encode(self.payload).decode(), "stamp": stamp}


@dataclass(frozen=True)
class Target:
    """Where calls go and how they are made."""

    address: str
    """http://host:port for HTTP/1.1, https:// for that with TLS, h2c://host:port, or h2://host:port with TLS."""
    path: str
    kind: str = "grpc"
    headers: dict[str, str] = field(default_factory=dict)
    pki: Path | None = None
    authority: str = ""
    identity: str = "orchestrator"
    """Whose certificate the generator shows."""

    def arguments(self) -> list[str]:
        given = ["-target", self.address, "-path", self.path, "-kind", self.kind, "-headers", json.dumps(self.headers)]
        if self.pki is not None:
            given += ["-ca", str(self.pki / "ca.pem"), "-authority", self.authority]
            given += ["-cert", str(self.pki / f"{self.identity}.pem"), "-key", str(self.pki / f"{self.identity}.key")]
        return given


class UnansweredError(Exception):
    """Nothing was measured: the first call failed, or no server answered."""


def program() -> Path:
    """Return the generator, building it if its sources are newer than what is there."""
    sources = sorted(SOURCES.glob("*.go"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + LOCK.read_bytes()).hexdigest()[:16]
    built = CACHE / f"loadgen-{digest}"
    if not built.exists():
        print("building the load generator (once)", file=sys.stderr)
        _build(built)
    return built


def _build(target: Path) -> None:
    place = environment("tools", LOCK)
    variables = {
        **os.environ,
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GOCACHE": str(CACHE / "go"),
        "CGO_ENABLED": "0",
    }
    variables |= {"GOFLAGS": "-mod=mod", "GOPATH": str(CACHE / "gopath"), "GOTELEMETRY": "off"}
    command = [str(place / "bin" / "go"), "build", "-trimpath", "-o", str(target), "."]
    subprocess.run(command, cwd=SOURCES, env=variables, check=True)


def offer(
    suite: str,
    case: str,
    target: Target,
    bodies: Sequence[Body],
    *,
    concurrency: int,
    pids: Sequence[int] | Mapping[str, Sequence[int]] = (),
    rate: float = 0.0,
    seconds: float = 4.0,
    warm: float = 1.0,
    expect: str = "",
    connections: int = 1,
) -> Row:
    """Offer load and return what was measured; what the processes used is shared out among all calls, warm ones
    included. Processes that
    come with the names of their parts are told apart."""
    seconds, groups = seconds * SPAN, pids if isinstance(pids, Mapping) else {"": pids}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([body.described() for body in bodies], file)
        file.flush()
        command = [str(program()), *target.arguments(), "-bodies", file.name, "-callers", str(concurrency)]
        command += ["-span", f"{seconds}s", "-warm", f"{warm}s", "-rate", str(rate), "-connections", str(connections)]
        command += ["-expect", expect] if expect else []
        before = {name: cpu_seconds(members) for name, members in groups.items()}
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        used = {name: cpu_seconds(members) - before[name] for name, members in groups.items()}
    if done.returncode:
        raise UnansweredError(f"{suite} / {case}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    calls = max(1.0, found["rps"] * (seconds + warm))
    more = {"failed": found["failed"], "failures": found["failures"]} if found["failed"] else {}
    if rate:
        more["offered_rps"] = round(rate, 1)
    if isinstance(pids, Mapping):
        more["cpu_us_by_process"] = {name: round(seconds / calls * 1e6, 1) for name, seconds in used.items()}
    return Row(
        suite=suite,
        case=case,
        concurrency=concurrency,
        rps=round(found["rps"], 1),
        p50_ms=round(found["p50_ms"], 3),
        p95_ms=round(found["p95_ms"], 3),
        p99_ms=round(found["p99_ms"], 3),
        cpu_us_per_call=round(sum(used.values()) / calls * 1e6, 1),
        more=more,
    )


def in_turns(floor: Callable[[], Row], case: Callable[[], Row], rounds: int = 5, by: str = "p50_ms") -> tuple[Row, Row]:
    """Measure two cases in turns and return of each the run in the middle, by the figure that counts: on a small
    machine, one run and the
    next differ by more than what is looked for."""
    runs = [(floor(), case()) for _ in range(rounds)]
    return middle([run[0] for run in runs], by), middle([run[1] for run in runs], by)


def middle(rows: Sequence[Row], by: str = "p50_ms") -> Row:
    """Return the run in the middle, by the figure that counts."""
    return sorted(rows, key=lambda row: float(getattr(row, by)))[len(rows) // 2]
