"""The walk over lists of names and values keeps declarations and limits."""

from __future__ import annotations

from libs.common.redaction.declared import Declared
from libs.common.redaction.scanner import Finding, Scanner


def test_a_declared_element_of_a_list_is_removed_as_declared() -> None:
    declared = Declared.of({"items": {"x-sensitivity": "high"}}, [])
    redacted = Scanner().value([["authorization", "abc-123"]], declared)
    assert redacted.findings == (Finding("/0", "declared"),)
