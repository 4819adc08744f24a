"""A service that fails, hangs, is slow, answers garbage, breaks off and limits: what two executors send to it.

The service counts its requests by call. The histogram says how many requests each call made. Both executors open and
close the circuit of a service together.
"""

from __future__ import annotations

import json
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest

from libs.common.rpc.status import from_rpc_error
from tests.harness.mesh import Mesh, cli, invoke, running_mesh
from tests.harness.stores import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
CALLS, THREADS, EXECUTORS = 50, 6, 2
# What a budget starts with, and what each call adds: services/executor/domain/resilience/retry.py.
FIRST, EARNED = 10.0, 0.2
# Each fault with the reason that callers get.
FAULTS = {
    "fail": "EXTERNAL_UNAVAILABLE",
    "hang": "EXTERNAL_TIMEOUT",
    "slow": "none",
    "garbage": "RESULT_INVALID",
    "half": "EXTERNAL_UNAVAILABLE",
    "limit": "EXTERNAL_RATE_LIMITED",
}
RETRIED = frozenset({"fail", "half", "limit"})
FAILURES, OPEN_SECONDS, ARRIVALS = 5, 10, 60
_HELD_SECONDS = 240


class Faulty(socketserver.StreamRequestHandler):
    """Misbehaves as the path says, and counts the request under the call that the path names."""

    seen: ClassVar[Counter[tuple[str, str]]] = Counter()
    guard = threading.Lock()
    # What `switch` does: it fails, or holds its requests until they are released.
    is_well = True
    released = threading.Event()

    def handle(self) -> None:
        method, target, _ = self.rfile.readline().decode().split()
        length = 0
        while line := self.rfile.readline().strip().lower():
            length = int(line.partition(b":")[2]) if line.startswith(b"content-length:") else length
        self.rfile.read(length)
        _, fault, call = target.split("/")
        with self.guard:
            self.seen[f"{method} {fault}", call] += 1
        if fault == "hang":
            time.sleep(4)
        elif fault == "slow":
            time.sleep(0.3)
        elif fault == "switch":
            fault = "good" if self.is_well else "fail"
            if self.is_well:
                self.released.wait(timeout=_HELD_SECONDS)
        self.wfile.write(_ANSWERS[fault])


def _answer(status: str, body: bytes, length: int | None = None, *headers: str) -> bytes:
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {size}", "connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


_ANSWERS = {
    "fail": _answer("500 Internal Server Error", b"{}"),
    "hang": b"",
    "slow": _answer("200 OK", b"{}"),
    "garbage": _answer("200 OK", b"{]"),
    "half": _answer("200 OK", b"{", 100),
    "limit": _answer("429 Too Many Requests", b"{}", None, "retry-after: 0"),
    "good": _answer("200 OK", b"{}"),
}


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Server(("127.0.0.1", 0), Faulty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Mesh]:
    folder, tools = tmp_path_factory.mktemp("upstream-faults"), tmp_path_factory.mktemp("tools")
    scale = ("--scale", f"executor={EXECUTORS}")
    with running_mesh(folder / "state", *scale, TOOLMESH_EGRESS_INTERNAL="127.0.0.0/8") as running:
        for fault in (*FAULTS, "good"):
            for method in ("get", "post"):
                (tools / f"{fault}_{method}.json").write_text(json.dumps(manifest(port, fault, method)))
        cli("tools", "register", str(tools), state=running.state)
        yield running


@pytest.fixture(scope="module")
def spent() -> list[int]:
    """The retries of the first tenant, for each fault so far."""
    return []


def manifest(port: int, fault: str, method: str) -> dict[str, Any]:
    """Return a tool that only reads; a POST must not be repeated all the same."""
    return {
        "schema_version": "0.2.0",
        "tool_id": f"{fault}_{method}",
        # Each has a circuit of its own.
        "namespace": f"{fault}-{method}",
        "version": "1.0.0",
        "title": "A faulty tool",
        "description": "Calls a service that misbehaves.",
        "provider": "faults",
        "kind": "custom",
        "protocol": "custom",
        "input": {"schema": {"type": "object", "properties": {"call": {"type": "string"}}, "required": ["call"]}},
        "output": {"schema": {"type": "object"}},
        "execution": {
            "runner": "http",
            "timeout_class": "standard",
            "timeout_default": "1s" if fault == "hang" else "5s",
            "access_tier": "network",
            "network_policy": {"allowed_domains": ["127.0.0.1"], "allowed_ports": [port]},
            "http": {"method": method, "url": f"http://127.0.0.1:{port}/{fault}/{{call}}"},
            "retry_policy": {"max_attempts": 3, "backoff_max": "0.050s"},
            # Budgets are seen alone: no circuit opens.
            "circuit_breaker": {"failure_threshold": 100},
        },
        "permission": {"required_scopes": ["tools:call"]},
        "mutation_class": "read_only",
        "observability": {"audit_detail": "summary"},
    }


def call_all(mesh: Mesh, tool: str, token: str, calls: list[str]) -> Counter[str]:
    """Make calls in several threads, and count their reasons."""

    def reason(call: str) -> str:
        body = {"tool": tool, "arguments": {"call": call}}
        answer = mesh.rpc("tools.invoke", body, token=token).json()
        return str(answer.get("error", {}).get("data", {}).get("reason", "none"))

    with ThreadPoolExecutor(THREADS) as pool:
        return Counter(pool.map(reason, calls))


def requests_of(kind: str, prefix: str) -> dict[str, int]:
    """Return how often each call was sent."""
    return {call: count for (name, call), count in Faulty.seen.items() if name == kind and call.startswith(prefix)}


@pytest.mark.parametrize("fault", FAULTS)
def test_retries_stay_within_the_budget_of_each_tenant_and_nothing_unsafe_is_repeated(
    mesh: Mesh, spent: list[int], fault: str
) -> None:
    first, second = (mesh.token(scopes="tools:call,tools:read", tenant=name) for name in ("red", "blue"))
    tool, unsafe = f"{fault}-get.{fault}_get", f"{fault}-post.{fault}_post"
    # The last one that was registered.
    wait_until(lambda: call_all(mesh, "good-post.good_post", first, ["ready"]).keys() == {"none"}, "the tools", 240)

    reasons = call_all(mesh, tool, first, [f"red-{number}" for number in range(CALLS)])
    sent = requests_of(f"GET {fault}", "red-")
    retries = sum(sent.values()) - len(sent)
    histogram = dict(sorted(Counter(sent.values()).items()))
    # The other tenant comes after the first has used up what it has.
    call_all(mesh, tool, second, ["blue-0"])
    blue = requests_of(f"GET {fault}", "blue-")["blue-0"]
    call_all(mesh, unsafe, first, [f"red-{number}" for number in range(CALLS // 4)])
    posts = requests_of(f"POST {fault}", "red-")
    sys.stdout.write(
        f"\n{fault:8} {dict(reasons)}: requests per call {histogram}, {retries} retries of {CALLS} calls;"
        f" the other tenant's call {blue}; per POST {dict(Counter(posts.values()))}\n"
    )
    assert reasons[FAULTS[fault]] >= 1
    assert len(sent) == CALLS
    assert max(sent.values()) <= 3
    # All faults share the origin, and so the budget; each executor has one.
    spent.append(retries)
    calls = CALLS * len(spent)
    assert sum(spent) <= EXECUTORS * (FIRST + EARNED * calls)
    assert blue == (3 if fault in RETRIED else 1)
    assert set(posts.values()) == {1}


@dataclass(frozen=True)
class Executors:
    """The replicas, called without the edge."""

    channels: tuple[grpc.Channel, ...]
    token: str

    def reason(self, executor: int, call: str) -> str:
        """Call the service that can be switched, and return the reason of the failure."""
        arguments = json.dumps({"call": call}).encode()
        try:
            invoke(self.channels[executor], "switch-get.switch_get", arguments, token=self.token, timeout=_HELD_SECONDS)
        except grpc.RpcError as error:
            return from_rpc_error(error).reason.name  # type: ignore[arg-type]
        return "none"


@pytest.fixture
def executors(mesh: Mesh, port: int, tmp_path: Path) -> Iterator[Executors]:
    document = manifest(port, "switch", "get")
    document["interface"] = {"safety": {"concurrency_safe": True, "read_only": True, "non_destructive": True}}
    document["execution"] |= {"timeout_class": "long_running", "timeout_default": f"{_HELD_SECONDS}s"}
    document["execution"]["circuit_breaker"] = {"failure_threshold": FAILURES, "open_time": f"{OPEN_SECONDS}s"}
    del document["execution"]["retry_policy"]
    (tmp_path / "switch.json").write_text(json.dumps(document))
    cli("tools", "register", str(tmp_path), state=mesh.state)
    with mesh.direct_channel("executor") as first, mesh.direct_channel("executor-2") as second:
        made = Executors((first, second), mesh.token(scopes="tools:call,tools:read"))
        Faulty.released.set()
        for number in range(EXECUTORS):
            wait_until(lambda number=number: made.reason(number, "ready") == "none", "the tool", 240)  # type: ignore[misc]
        yield made
        Faulty.released.set()


def test_two_executors_open_together_let_a_tenth_pass_and_close_together(executors: Executors) -> None:
    """An answer that begins after either executor refused one is a refusal, whichever executor it is from."""
    Faulty.is_well = False
    with ThreadPoolExecutor(EXECUTORS) as pool:
        calls = [each for loop in pool.map(partial(call_until_open, executors), range(EXECUTORS)) for each in loop]
    first = min(call.ended for call in calls if call.reason == "CIRCUIT_OPEN")
    late = {call.reason for call in calls if first < call.started and call.ended < first + OPEN_SECONDS}
    # A loop that took longer than the open time met a half-open circuit.
    canaries = int((max(call.ended for call in calls) - first) / OPEN_SECONDS)
    opened = [min(each.ended for each in calls if each.executor == n and each.reason == "CIRCUIT_OPEN") for n in (0, 1)]
    failed = sum(requests_of("GET switch", "open-").values())
    sys.stdout.write(f"\nopened after {failed} failures, {abs(opened[0] - opened[1]):.3f} s apart\n")
    assert late <= {"CIRCUIT_OPEN"}
    assert FAILURES <= failed <= FAILURES + EXECUTORS - 1 + canaries

    Faulty.is_well = True
    with ThreadPoolExecutor(ARRIVALS) as pool, released_at_the_end():
        begun = begin_half_open(executors, pool)
        started = time.monotonic()
        waiting = [pool.submit(executors.reason, n % EXECUTORS, f"half-{n}") for n in range(1, ARRIVALS)]

        def passed() -> int:
            return len(requests_of("GET switch", "half-"))

        wait_until(lambda: sum(each.done() for each in waiting) + passed() == ARRIVALS, "all calls", _HELD_SECONDS)
        seconds = time.monotonic() - started
        sys.stdout.write(f"half open: {passed()} of {ARRIVALS} calls passed in {seconds:.1f} s\n")
        # A circuit without a result for the open time lets another one pass.
        assert passed() <= ARRIVALS // 10 + int(seconds / OPEN_SECONDS)
        assert {each.result() for each in waiting if each.done()} == {"CIRCUIT_OPEN"}
    assert Counter(each.result() for each in (begun, *waiting))["none"] == passed()
    for number in range(EXECUTORS):
        wait_until(lambda n=number: executors.reason(n, "closed") == "none", "a closed circuit", 240)  # type: ignore[misc]


@contextmanager
def released_at_the_end() -> Iterator[None]:
    """Let the service hold its requests until the test goes on, or fails."""
    Faulty.released.clear()
    try:
        yield
    finally:
        Faulty.released.set()


@dataclass(frozen=True)
class TimedCall:
    """A call of one executor."""

    executor: int
    started: float
    ended: float
    reason: str


def call_until_open(executors: Executors, executor: int) -> list[TimedCall]:
    """Call a failing service until this executor has refused three calls."""
    calls: list[TimedCall] = []
    while sum(call.reason == "CIRCUIT_OPEN" for call in calls) < 3:
        started = time.monotonic()
        reason = executors.reason(executor, f"open-{executor}-{len(calls)}")
        calls.append(TimedCall(executor, started, time.monotonic(), reason))
    return calls


def begin_half_open(executors: Executors, pool: ThreadPoolExecutor) -> Future[str]:
    """Call until the circuit lets one pass, and return that call. The service holds it."""
    found: list[Future[str]] = []

    def is_held() -> bool:
        if not found or found[0].done():
            found[:] = [pool.submit(executors.reason, 0, "half-0")]
        return bool(requests_of("GET switch", "half-0"))

    wait_until(is_held, "a half-open circuit", 240)
    return found[0]
