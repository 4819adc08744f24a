"""Sensitive elements of lists."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.redaction.scanner import Finding, Scanner


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ([["authorization", "abc-123"]], "/0/1"),
        ({"headers": [["accept", "*/*"], ["x-api-key", "abc-123"]]}, "/headers/1/1"),
        (["login", "--password", "abc-123"], "/2"),
        (["curl", "-u", "user:abc-123"], "/2"),
    ],
)
def test_an_element_behind_a_telling_one_is_removed(value: Any, pointer: str) -> None:
    redacted = Scanner().value(value)
    assert "abc-123" not in str(redacted.value)
    assert [finding.pointer for finding in redacted.findings] == [pointer]


@pytest.mark.parametrize(
    "value", [["password", "email"], [[1, 2], [3, 4]], ["id", "-u", "1000:1000"], ["ls", "--token", "--all"], [[]], []]
)
def test_other_lists_are_left_alone(value: list[Any]) -> None:
    assert Scanner().value(value).findings == ()


def test_a_pair_with_a_sensitive_name_and_value_has_both_findings() -> None:
    redacted = Scanner().value([["alice@example.com password", "hunter2"]])
    assert redacted.findings == (Finding("/0/0", "email"), Finding("/0/1", "password"))
