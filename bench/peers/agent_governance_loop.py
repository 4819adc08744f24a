"""Microsoft's agent-governance-toolkit around the echo, in process: its policy engine asked and its audit chain
extended on every call, as its
quick start wires them. Run in the environment of that peer; prints one JSON object."""

from __future__ import annotations

import json
import sys
import time
import warnings

warnings.simplefilter("ignore", DeprecationWarning)

from agentmesh.governance import GovernanceDenied, govern  # type: ignore[import-not-found]  # noqa: E402

POLICY = """
apiVersion: governance.toolkit/v1
name: bench
agents: ["*"]
default_action: deny
rules:
  - name: the-echo-runs-free
    condition: "action.type == 'echo'"
    action: allow
    priority: 10
"""
BLOCK = 100


def echo(action: str, text: str) -> dict[str, str]:
    """Return the text."""
    return {"text": text}


def measure(seconds: float) -> dict[str, float]:
    """Call for so long, one after the other; return how long a call took, and what it took of the processor."""
    governed = govern(echo, policy=POLICY, agent_id="did:web:toolmesh.local:users:bench")
    try:
        governed(action="other", text="hello")
        raise SystemExit("the policy was not asked")
    except GovernanceDenied:
        pass
    waits, begin, used = [], time.perf_counter(), time.process_time()
    while (start := time.perf_counter()) - begin < seconds:
        for _ in range(BLOCK):
            governed(action="echo", text="hello")
        waits.append((time.perf_counter() - start) / BLOCK)
    count, took, used = len(waits) * BLOCK, time.perf_counter() - begin, time.process_time() - used
    waits.sort()
    at = {f"p{q}_ms": waits[min(len(waits) - 1, len(waits) * q // 100)] * 1000 for q in (50, 95, 99)}
    return {"rps": count / took, "cpu_us_per_call": used / count * 1e6, **at}


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]))))
