from __future__ import annotations

import os
import resource
import subprocess
from dataclasses import asdict

import pytest

from services.executor.adapters.sandbox.launcher import rlimits
from services.executor.adapters.sandbox.port import Plan

PLAN = asdict(Plan(("/bin/true",), memory_bytes=1 << 28, file_bytes=4096, processes=5, cpu_seconds=2.5))


def test_every_process_gets_rlimits() -> None:
    found = {which: (soft, hard) for which, soft, hard in rlimits.process_limits(PLAN, memory=False, processes=False)}
    assert found[resource.RLIMIT_CPU] == (3, 4)
    assert found[resource.RLIMIT_FSIZE] == (4096, 4096)
    assert found[resource.RLIMIT_CORE] == (0, 0)
    assert not {resource.RLIMIT_AS, resource.RLIMIT_NPROC} & found.keys()


def test_memory_and_processes_are_limited_without_a_cgroup() -> None:
    found = {which: soft for which, soft, _ in rlimits.process_limits(PLAN, memory=True, processes=True)}
    assert found[resource.RLIMIT_AS] == 1 << 28
    assert found[resource.RLIMIT_NPROC] == 5 + rlimits.BWRAP_PROCESSES


def test_cpu_limit_is_at_least_one_second() -> None:
    plan = asdict(Plan(("/bin/true",), cpu_seconds=0.1))
    assert (resource.RLIMIT_CPU, 1, 2) in list(rlimits.process_limits(plan, memory=False, processes=False))


def test_apply_limits_never_raises_a_limit() -> None:
    """In a separate process, because limits cannot be raised again."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            rlimits.apply_limits(iter([(resource.RLIMIT_NOFILE, 50, 60)]))
            rlimits.apply_limits(iter([(resource.RLIMIT_NOFILE, 55, 1000)]))
            status = 0 if resource.getrlimit(resource.RLIMIT_NOFILE) == (55, 60) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_limit_processes_sets_the_limit_of_another_process() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        rlimits.limit_processes(other.pid, 5)
        assert resource.prlimit(other.pid, resource.RLIMIT_NPROC) == (6, 6)
        other.kill()


def test_limit_processes_fails_for_an_ended_process() -> None:
    with subprocess.Popen(["true"]) as other:
        other.wait()
    with pytest.raises(OSError):
        rlimits.limit_processes(other.pid, 5)
