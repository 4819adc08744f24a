"""Arguments: parsed, completed, held to the contract, and shown without secrets."""

from __future__ import annotations

import pytest

from libs.common.canonical import digest
from libs.common.errors import MeshError, Reason
from libs.common.jsonio import parse
from libs.common.redaction.scanner import Scanner
from services.executor.domain.arguments import EXAMINED_BYTES, SUMMARY_BYTES, describe, prepare
from services.executor.tests.samples import a_tool


def test_defaults_are_filled_in_and_named() -> None:
    assert prepare(a_tool(), b'{"text":"a"}') == ({"text": "a", "count": 1}, ("/count",))
    assert prepare(a_tool(), b'{"text":"a","count":3}') == ({"text": "a", "count": 3}, ())


def test_a_default_that_a_runner_changes_is_whole_again_for_the_next_call() -> None:
    schema = {"type": "object", "properties": {"list": {"type": "array", "default": [1]}}}
    tool = a_tool(input_schema=schema)
    first, _ = prepare(tool, b"{}")
    first["list"].append(2)
    assert prepare(tool, b"{}")[0] == {"list": [1]}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", Reason.INVALID_JSON),
        (b"[]", Reason.INVALID_JSON),
        (b'{"text":"a","text":"b"}', Reason.INVALID_JSON),
        (b'{"count":18446744073709551616}', Reason.INVALID_JSON),
        (b'{"text":' + b"[" * 70 + b"]" * 70 + b"}", Reason.PAYLOAD_TOO_LARGE),
    ],
)
def test_what_is_not_the_json_of_the_contract_is_refused(payload: bytes, reason: Reason) -> None:
    with pytest.raises(MeshError) as caught:
        prepare(a_tool(), payload)
    assert caught.value.reason is reason


def test_evidence_shows_the_digest_of_the_whole_and_a_summary_without_secrets() -> None:
    tool, value = a_tool(), {"text": "a", "secret": "hunter2"}
    shown = describe(value, tool.input, tool, Scanner())
    assert shown.digest == digest(value)
    assert parse(shown.summary) == {"text": "a", "secret": "[redacted:declared]"}


def test_a_tool_that_wants_digests_only_gets_no_summary() -> None:
    tool = a_tool(summarized=False)
    assert describe({"text": "a"}, tool.input, tool, Scanner()).summary == b""


def test_a_summary_that_would_be_too_long_says_so_instead() -> None:
    tool = a_tool()
    size = len(b'{"text":""}') + SUMMARY_BYTES
    shown = describe({"text": "x" * SUMMARY_BYTES}, tool.input, tool, Scanner())
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
    described = describe(value, tool.output, tool, Scanner())
    assert parse(described.summary) == shown
    assert described.digest == digest(value)


def test_what_is_too_long_to_examine_is_not_summarised() -> None:
    tool = a_tool()
    value = {"text": "x" * EXAMINED_BYTES, "password": "hunter2"}
    assert b"hunter2" not in describe(value, tool.output, tool, Scanner()).summary
