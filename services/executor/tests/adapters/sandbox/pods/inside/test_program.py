"""The limits of a program in a pod."""

from __future__ import annotations

import resource

import pytest

from services.executor.adapters.sandbox.pods.inside import program


def test_only_the_limit_that_gvisor_refuses_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def refuse(which: int, _: tuple[int, int]) -> None:
        refused.append(which)
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    program._set_limit(resource.RLIMIT_MSGQUEUE, (0, 0))
    with pytest.raises(ValueError, match="not allowed"):
        program._set_limit(resource.RLIMIT_NOFILE, (64, 64))
    assert refused == [resource.RLIMIT_MSGQUEUE, resource.RLIMIT_NOFILE]
