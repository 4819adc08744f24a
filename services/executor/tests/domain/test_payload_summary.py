"""How evidence shows arguments and results: by their digest, and without secrets."""

from __future__ import annotations

import pytest

from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse
from libs.common.redaction.scanner import Scanner
from services.executor.domain.payload_summary import EXAMINED_BYTES, SUMMARY_BYTES, summarize_payload
from services.executor.tests.samples import a_tool


def test_evidence_shows_the_digest_of_the_whole_and_a_summary_without_secrets() -> None:
    tool, value = a_tool(), {"text": "a", "secret": "hunter2"}
    shown = summarize_payload(value, tool.input, tool, Scanner())
    assert shown.digest == digest(value)
    assert parse(shown.summary) == {"text": "a", "secret": "[redacted:declared]"}


def test_a_tool_that_wants_digests_only_gets_no_summary() -> None:
    tool = a_tool(summarized=False)
    assert summarize_payload({"text": "a"}, tool.input, tool, Scanner()).summary == b""


def test_a_summary_that_would_be_too_long_says_so_instead() -> None:
    tool = a_tool()
    size = len(b'{"text":""}') + SUMMARY_BYTES
    shown = summarize_payload({"text": "x" * SUMMARY_BYTES}, tool.input, tool, Scanner())
    assert parse(shown.summary) == {"truncated": True, "size_bytes": size}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"text": "card 4111 1111 1111 1111"}, {"text": "card [redacted:payment_card]"}),
        ({"text": "a", "note": {"apiKey": "abc123"}}, {"text": "a", "note": {"apiKey": "[redacted:secret]"}}),
        ({"text": "alice@example.com"}, {"text": "[redacted:email]"}),
        ({"text": "hello", "n": 7}, {"text": "hello", "n": 7}),
    ],
)
def test_a_summary_holds_nothing_that_betrays_itself(value: dict[str, object], shown: dict[str, object]) -> None:
    tool = a_tool()
    described = summarize_payload(value, tool.output, tool, Scanner())
    assert parse(described.summary) == shown
    assert described.digest == digest(value)


def test_what_is_too_long_to_examine_is_not_summarised() -> None:
    tool = a_tool()
    value = {"text": "x" * EXAMINED_BYTES, "password": "hunter2"}
    assert b"hunter2" not in summarize_payload(value, tool.output, tool, Scanner()).summary
