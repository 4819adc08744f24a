"""Streams are counted per subject, tenant and process."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.rpc.stream_slots import StreamLimits, StreamSlots

LIMITS = StreamLimits(per_subject=2, per_tenant=3, per_process=5)


def refusal(slots: StreamSlots, subject: str, tenant: str) -> tuple[Reason, str]:
    with pytest.raises(MeshError) as caught, slots.hold(subject, tenant):
        pass
    assert caught.value.retry_after
    return caught.value.reason, caught.value.metadata["scope"]


def test_each_limit_refuses_the_next_read() -> None:
    slots = StreamSlots(LIMITS)
    with ExitStack() as held:
        for subject, tenant in (("a", "acme"), ("a", "acme")):
            held.enter_context(slots.hold(subject, tenant))
        assert refusal(slots, "a", "acme") == (Reason.RATE_LIMITED, "subject")
        held.enter_context(slots.hold("b", "acme"))
        assert refusal(slots, "c", "acme") == (Reason.RATE_LIMITED, "tenant")
        for subject, tenant in (("a", "globex"), ("", "")):
            held.enter_context(slots.hold(subject, tenant))
        assert refusal(slots, "d", "initech") == (Reason.OVERLOADED, "process")
        assert refusal(slots, "", "") == (Reason.OVERLOADED, "process")


def test_a_refused_read_holds_nothing_and_an_ended_one_frees_its_slots() -> None:
    slots = StreamSlots(LIMITS)
    for _ in range(10):
        with slots.hold("a", "acme"), slots.hold("a", "acme"):
            refusal(slots, "a", "acme")
    with pytest.raises(ZeroDivisionError), slots.hold("a", "acme"):
        raise ZeroDivisionError
    assert not slots._held


def test_a_subject_is_that_of_its_tenant() -> None:
    slots = StreamSlots(LIMITS)
    with slots.hold("a", "acme"), slots.hold("a", "acme"), slots.hold("a", "globex"), slots.hold("a", ""):
        assert refusal(slots, "a", "acme") == (Reason.RATE_LIMITED, "subject")
