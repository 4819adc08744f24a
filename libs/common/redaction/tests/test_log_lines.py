"""A caller's input does not reach a log: not in warnings, causes of errors or request ids."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from libs.common.rpc.telemetry import Telemetry
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

TOKEN = "ghp" + "_" + "A1b2" * 9


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """A log, and what it wrote."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    yield Log("a", descriptor=descriptor), lambda: path.read_text()
    os.close(descriptor)


def test_the_cause_of_an_error_is_shown_without_what_it_quotes(written: Any) -> None:
    log, read = written
    try:
        raise ValueError(f"cannot parse 4111 1111 1111 1111 of alice@example.com with {TOKEN}")
    except ValueError as error:
        log.error("tool failed", tool="tools/core.echo/versions/1.0.0", cause=error)
    line = json.loads(read())
    assert line["tool"] == "tools/core.echo/versions/1.0.0"
    assert "cannot parse [redacted:payment_card] of [redacted:email] with [redacted:github_token]" in line["cause"]


def test_a_warning_is_shown_without_what_its_fields_hold(written: Any) -> None:
    log, read = written
    log.warning("odd", password="hunter2", violations=["/a: alice@example.com is too long"], count=3)
    line = json.loads(read())
    assert (line["password"], line["count"]) == ("[redacted:password]", 3)
    assert line["violations"] == ["/a: [redacted:email] is too long"]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("0190a8c4-7e2b-7c3d-9f00-aabbccddeeff", "0190a8c4-7e2b-7c3d-9f00-aabbccddeeff"),
        ("order-17", "order-17"),
        (TOKEN, "[redacted:github_token]"),
        ("", ""),
    ],
)
def test_a_request_is_named_without_what_its_name_gives_away(sent: str, shown: str) -> None:
    context = SimpleNamespace(invocation_metadata=lambda: (("x-request-id", sent),), time_remaining=lambda: None)
    begin, _ = Telemetry(Log("a", level="error"), Tracing(), 0.0).observer("/a/B", "/a/B")
    assert begin(context).request_id == shown
