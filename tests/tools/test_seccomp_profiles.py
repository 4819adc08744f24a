"""The seccomp profiles of the executor's pod."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from services.executor.adapters.sandbox.seccomp.allowlist import KILL_CALLS
from tools.seccomp_profiles import CALLS, VERSION, documents, profile

DIGESTS = {
    1: "16c83739b5c8e108198db6c0768814567e9b8aaee61388aca74f2bd31380d9fd",
    2: "402dc2d95abd6451b59ec95e179bb2982b07386a5581170e932ce765185e1efd",
    3: "5ba75dc959ec16032a9c43cdc705fe6802300f52427fefe30a0620d3b17f5986",
}
"""What each version of the profiles allows. Nodes hold it as a file: a change needs the next version."""


def allowed(rendered: dict[str, Any]) -> set[str]:
    """Return the calls that a profile allows without a condition."""
    rules = rendered["syscalls"]
    return {
        name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule for name in rule["names"]
    }


def test_the_committed_profiles_are_those_that_the_program_renders(repository: Path) -> None:
    rendered = documents()
    assert rendered.keys() == {
        f"deploy/seccomp/{path.name}" for path in (repository / "deploy/seccomp").glob("*-v*.json")
    }
    for path, render in rendered.items():
        assert (repository / path).read_text() == render()


def test_a_changed_profile_has_a_new_version() -> None:
    texts = "".join(render() for _, render in sorted(documents().items()))
    assert hashlib.sha256(texts.encode()).hexdigest() == DIGESTS[VERSION]


@pytest.mark.parametrize(("name", "count"), [("toolmesh-executor", 8), ("toolmesh-executor-gvisor", 7)])
def test_a_profile_allows_the_default_and_the_calls_of_its_sandboxes(repository: Path, name: str, count: int) -> None:
    default = json.loads((repository / "deploy/seccomp/runtime-default.json").read_text())
    assert allowed(profile(CALLS[name])) - set(default["allowed"]) == CALLS[name]
    assert len(CALLS[name]) == count


def test_no_profile_allows_what_gives_power_over_the_node() -> None:
    # Those that sandboxes make themselves, and those that act on processes of the pod alone.
    needed = CALLS["toolmesh-executor"] | {"ptrace", "process_vm_readv", "process_vm_writev"}
    for calls in CALLS.values():
        assert allowed(profile(calls)) & KILL_CALLS <= needed


def test_a_call_has_one_rule() -> None:
    for calls in CALLS.values():
        free = allowed(profile(calls))
        others = [name for rule in profile(calls)["syscalls"][1:] for name in rule["names"]]
        assert free.isdisjoint(others)
