"""The OCI seccomp profile of gVisor."""

from __future__ import annotations

import pytest

from services.executor.adapters.sandbox.gvisor.seccomp_profile import seccomp_profile
from services.executor.adapters.sandbox.seccomp.allowlist import ALLOWED, KILL_CALLS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_unlisted_calls_are_refused(machine: str) -> None:
    made = seccomp_profile(machine)
    actions = {name: rule["action"] for rule in made["syscalls"] for name in rule["names"] if "args" not in rule}
    assert made["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {name for name, action in actions.items() if action == "SCMP_ACT_ALLOW"} == ALLOWED | {"ioctl", "pselect"}
    assert {name for name, action in actions.items() if action == "SCMP_ACT_KILL"} == KILL_CALLS


def test_calls_with_argument_checks_are_never_allowed_unconditionally() -> None:
    examined = [rule for rule in seccomp_profile("x86_64")["syscalls"] if "args" in rule]
    assert {name for rule in examined for name in rule["names"]} == {"socket", "socketpair", "clone", "personality"}
    assert not {"socket", "socketpair", "clone", "personality"} & ALLOWED


def test_an_unsupported_machine_has_no_profile() -> None:
    with pytest.raises(KeyError):
        seccomp_profile("mips")
