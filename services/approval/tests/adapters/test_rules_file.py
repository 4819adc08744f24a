"""The file of approval rules."""

from __future__ import annotations

from datetime import timedelta

import pytest

from services.approval.adapters.rules_file import parse_rules


def test_steps_fraction_and_lifetimes_are_read() -> None:
    rules = parse_rules(b'{"escalation": {"steps": ["30m", "1d"]}, "approval_lifetime": "90s"}')
    assert rules.steps == (timedelta(minutes=30), timedelta(days=1))
    assert rules.approval_lifetime == timedelta(seconds=90)
    by_fraction = parse_rules(b'{"escalation": {"fraction": 0.5, "timeout": "2h"}, "break_glass_groups": ["oncall"]}')
    assert (by_fraction.fraction, by_fraction.timeout) == (0.5, timedelta(hours=2))
    assert by_fraction.break_glass_groups == {"oncall"}


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"on_timeout": "approve"}',
        b'{"on_timeout": null}',
        b'{"on_silence": "approve"}',
        b'{"escalation": {"steps": ["1h"], "fraction": 0.5}}',
        b'{"escalation": {"fraction": 1.5}}',
        b'{"escalation": {"fraction": 1e400}}',
        b'{"escalation": {"steps": ["0s"]}}',
        b'{"escalation": {"steps": ["8d"]}}',
        b'{"approval_lifetime": "forever"}',
    ],
)
def test_a_wrong_rules_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_rules(content)
