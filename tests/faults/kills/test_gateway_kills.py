"""Two gateways, one of them killed again and again under load: no accepted call is lost, and sessions and streams go
on."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.harness.mesh import Mesh, cli, running_mesh

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
CALLERS, CALLS, KILLS = 4, 60, 4
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
# The edge could not pass it on, or a process was lost while it had it: the caller asks again with the same key.
ASK_AGAIN = ("SERVICE_UNAVAILABLE", "OVERLOADED")


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("gateways") / "state", "--scale", "gateway=2") as running:
        cli("tools", "register", "examples/packs/jobkit/manifests", state=running.state)
        yield running


def keep_killing(mesh: Mesh, stop: threading.Event) -> None:
    """Kill the gateways in turns, each once the other is back."""
    for number in range(KILLS):
        part = ("gateway", "gateway-2")[number % 2]
        pid = mesh.kill(part)
        mesh.wait_ready(part, pid)
        if stop.is_set():
            return


def until_answered(mesh: Mesh, token: str, key: str) -> dict[str, Any]:
    """Call, and ask again with the same key while the outcome is not known."""
    while True:
        params = {"tool": "echo", "arguments": {"text": key}}
        try:
            answer = mesh.rpc("tools.invoke", params, token=token, headers={"idempotency-key": key}).json()
        except httpx.TransportError:
            continue
        if "result" in answer or answer["error"]["data"]["reason"] not in ASK_AGAIN:
            return dict(answer)
        time.sleep(0.05)


def test_no_accepted_call_is_lost_and_none_runs_twice(mesh: Mesh) -> None:
    token, stop = mesh.token(), threading.Event()
    answers: dict[str, Any] = {}

    def call(caller: int) -> None:
        for number in range(CALLS):
            key = f"call-{caller}-{number}"
            answers[key] = until_answered(mesh, token, key)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    killer = threading.Thread(target=keep_killing, args=(mesh, stop))
    for thread in (*callers, killer):
        thread.start()
    for thread in callers:
        thread.join()
    stop.set()
    killer.join()
    assert len(answers) == CALLERS * CALLS
    assert [
        key for key, answer in answers.items() if answer.get("result", {}).get("structured_content") != {"text": key}
    ] == []
    invocations = Counter(answer["result"]["invocation_id"] for answer in answers.values())
    assert max(invocations.values()) == 1


def send(mesh: Mesh, token: str, method: str, params: Any, session: str = "") -> httpx.Response:
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token}"}
    if session:
        headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    while True:
        try:
            answer = httpx.post(f"{mesh.url}/mcp", json=body, headers=headers, timeout=60, trust_env=False)
        except httpx.TransportError:
            continue
        if answer.status_code != 503:
            return answer
        time.sleep(0.05)


def test_a_session_goes_on_when_the_gateway_that_opened_it_is_killed(mesh: Mesh) -> None:
    token = mesh.token()
    session = send(mesh, token, "initialize", HELLO).headers["mcp-session-id"]
    for part in ("gateway", "gateway-2"):
        pid = mesh.kill(part)
        called = send(mesh, token, "tools/call", {"name": "core__echo", "arguments": {"text": part}}, session).json()
        assert called["result"]["structuredContent"] == {"text": part}
        mesh.wait_ready(part, pid)


def test_a_stream_goes_on_at_the_other_gateway(mesh: Mesh) -> None:
    token = mesh.token()
    call = {"tool": "samples.count_slowly", "arguments": {"count": 40}, "timeout_ms": 240_000}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools.invoke", "params": call}
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {token}"}
    last_id, seen, result, killed = "", list[int](), None, dict[str, int]()
    while result is None:
        resumed = {"last-event-id": last_id} if last_id else {}
        try:
            with httpx.stream(
                "POST", f"{mesh.url}/rpc", json=body, headers=headers | resumed, timeout=60, trust_env=False
            ) as response:
                for line in response.iter_lines():
                    name, _, value = line.partition(": ")
                    if name == "id":
                        last_id = value
                    if name != "data" or not value:
                        continue
                    message = json.loads(value)
                    if "method" not in message:
                        result = message["result"]
                        break
                    seen.append(message["params"]["sequence"])
                    if len(seen) == 3 and not killed:
                        # Whichever has the stream: both are killed, one after the other.
                        killed = {part: mesh.kill(part) for part in ("gateway", "gateway-2")}
        except httpx.TransportError:
            time.sleep(0.1)
    for part, pid in killed.items():
        mesh.wait_ready(part, pid)
    assert result["status"] == "succeeded"
    # Without a gap, and nothing twice.
    assert seen == list(range(seen[0], seen[0] + len(seen)))
