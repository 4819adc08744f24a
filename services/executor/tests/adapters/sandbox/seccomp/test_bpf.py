"""The seccomp filter, executed by a small BPF interpreter, for both architectures."""

from __future__ import annotations

import socket
import struct

import pytest
from system_calls import syscalls  # type: ignore[import-untyped]

from services.executor.adapters.sandbox.seccomp import bpf as seccomp
from services.executor.adapters.sandbox.seccomp.allowlist import ALLOWED, KILL_CALLS

MACHINES = ["x86_64", "aarch64"]
EXAMINED = {"socket", "socketpair", "ioctl", "personality", "clone"}


def numbers(machine: str) -> dict[str, int]:
    return dict(syscalls().load_arch_table(seccomp.ARCHITECTURES[machine].name))


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None, loopback: bool = False) -> int:
    """Run the filter on one call and return what it says."""
    audit = seccomp.ARCHITECTURES[machine].audit if audit is None else audit
    padded = (*arguments, *[0] * (6 - len(arguments)))
    call = (
        struct.pack("<iIQ6Q", number, audit, 0, *padded)
        if number < 1 << 31
        else struct.pack("<IIQ6Q", number, audit, 0, *padded)
    )
    compile_filter = list(struct.iter_unpack("<HBBI", seccomp.compile_filter(machine, loopback=loopback)))
    at = held = 0
    for _ in range(len(compile_filter)):
        operation, true, false, operand = compile_filter[at]
        at += 1
        match operation:
            case 0x20:
                (held,) = struct.unpack_from("<I", call, operand)
            case 0x05:
                at += operand
            case 0x15:
                at += true if held == operand else false
            case 0x35:
                at += true if held >= operand else false
            case 0x45:
                at += true if held & operand else false
            case 0x54:
                held &= operand
            case 0x06:
                return operand
    raise AssertionError("the filter has no end")


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_number_gets_the_action_of_its_name(machine: str) -> None:
    names = {number: name for name, number in numbers(machine).items()}
    for number in range(max(names) + 50):
        name = names.get(number)
        if name in EXAMINED:
            continue
        expected = (
            seccomp.ABSENT
            if name in (None, "clone3")
            else seccomp.KILL
            if name in KILL_CALLS
            else seccomp.ALLOW
            if name in ALLOWED
            else seccomp.REFUSE
        )
        assert verdict(machine, number) == expected, name


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_kill(machine: str) -> None:
    assert verdict(machine, numbers(machine)["read"], audit=0x40000003) == seccomp.KILL


def test_x32_calls_kill() -> None:
    assert verdict("x86_64", 0x40000000 | numbers("x86_64")["read"]) == seccomp.KILL
    assert verdict("x86_64", 0xFFFFFFFF) == seccomp.KILL


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_only_unix_sockets_are_allowed(machine: str, call: str) -> None:
    number = numbers(machine)[call]
    assert verdict(machine, number, 1) == seccomp.ALLOW
    assert {verdict(machine, number, family) for family in (0, *range(2, 50))} == {seccomp.REFUSE}


@pytest.mark.parametrize("machine", MACHINES)
def test_clone_is_allowed_without_namespace_flags(machine: str) -> None:
    number = numbers(machine)["clone"]
    assert verdict(machine, number, 17) == seccomp.ALLOW
    assert verdict(machine, number, 0x3D0F00) == seccomp.ALLOW
    flags = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
    assert {verdict(machine, number, flag | 17) for flag in flags} == {seccomp.REFUSE}


@pytest.mark.parametrize("machine", MACHINES)
def test_upper_half_of_an_argument_cannot_bypass_the_filter(machine: str) -> None:
    table = numbers(machine)
    assert verdict(machine, table["ioctl"], 0, 0x5412 | 1 << 32) == seccomp.REFUSE
    assert verdict(machine, table["socket"], 2 | 1 << 32) == seccomp.REFUSE
    assert verdict(machine, table["clone"], 0x10000000 | 1 << 32) == seccomp.REFUSE


@pytest.mark.parametrize("machine", MACHINES)
def test_ioctl_cannot_inject_terminal_input(machine: str) -> None:
    number = numbers(machine)["ioctl"]
    assert verdict(machine, number, 0, 0x5401) == seccomp.ALLOW
    assert {verdict(machine, number, 0, request) for request in (0x5412, 0x541C)} == {seccomp.REFUSE}


@pytest.mark.parametrize("machine", MACHINES)
def test_personality_cannot_disable_address_randomization(machine: str) -> None:
    number = numbers(machine)["personality"]
    assert verdict(machine, number, 0xFFFFFFFF) == seccomp.ALLOW
    assert verdict(machine, number, 0x0040000) == seccomp.REFUSE


def test_no_call_is_both_allowed_and_killed() -> None:
    assert frozenset() == ALLOWED & KILL_CALLS
    assert frozenset() == (ALLOWED | KILL_CALLS) & EXAMINED


def test_an_unsupported_machine_raises_key_error() -> None:
    with pytest.raises(KeyError):
        seccomp.compile_filter("riscv64")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("family", "kind", "protocol", "allowed"),
    [
        (socket.AF_UNIX, socket.SOCK_DGRAM, 0, True),
        (socket.AF_INET, socket.SOCK_STREAM, 0, True),
        (socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP, True),
        (socket.AF_INET, socket.SOCK_DGRAM, 0, False),
        (socket.AF_INET, socket.SOCK_RAW, 0, False),
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP, False),
        (socket.AF_NETLINK, socket.SOCK_STREAM, 0, False),
    ],
)
def test_loopback_allows_tcp_beside_unix_sockets(
    machine: str, family: int, kind: int, protocol: int, allowed: bool
) -> None:
    number = numbers(machine)["socket"]
    expected = seccomp.ALLOW if allowed else seccomp.REFUSE
    assert verdict(machine, number, family, kind, protocol, loopback=True) == expected
    if family != socket.AF_UNIX:
        assert verdict(machine, number, family, kind, protocol) == seccomp.REFUSE
