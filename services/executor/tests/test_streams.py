"""The ends of pipes."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.streams import open_pipes


def held() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.exists())


def test_pipes_are_opened_together_or_not_at_all() -> None:
    usual, before = resource.getrlimit(resource.RLIMIT_NOFILE), held()
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(before[-1] - len(before) + 4)]
    last = max(held())
    os.close(spare.pop())
    os.close(spare.pop())
    os.close(spare.pop())
    # Room for one pipe and a half.
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, usual[1]))
    try:
        with pytest.raises(OSError):
            open_pipes(2)
        [(end, other)] = open_pipes(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    for descriptor in (end, other, *spare):
        os.close(descriptor)
    assert held() == before
