"""An error is never larger than what its way to the caller holds, and says what it left out."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest

from libs.common.errors import MeshError, Reason, Violation
from libs.common.rpc.error_size import ENVELOPE_BYTES, LEFT_OUT
from libs.common.rpc.status import envelope, from_envelope, status_text, trailing_details

# What a client of gRPC takes of trailers by default.
MOST = 8 * 1024


def many(count: int, **changes: str) -> list[Violation]:
    fields = {"path": "/rows/{}/price", "rule": "type", "message": "the value is not of type integer", **changes}
    return [Violation(fields["path"].format(n), fields["rule"], fields["message"]) for n in range(count)]


@pytest.mark.parametrize(
    "parts",
    [
        {"violations": many(100)},
        {"violations": many(10_000)},
        {"violations": [Violation("/" + "a" * 3_000_000, "unevaluatedProperties", "is not declared")]},
        {"violations": many(100, message="\N{SNOWMAN}" * 300)},
        {"violations": many(100), "metadata": {f"context.{n}": "\N{SNOWMAN}" * 300 for n in range(4)}},
        {"message": "\N{SNOWMAN}" * 5000, "metadata": {"state_reason": "why " * 2000}},
    ],
    ids=["many", "thousands", "one long place", "long sentences", "hooks had much to add", "long texts"],
)
def test_an_error_fits_into_what_every_client_takes_and_stays_what_it_is(parts: dict[str, Any]) -> None:
    error = MeshError(Reason.ARGUMENTS_INVALID, invocation_id="i", **parts)
    told = envelope(error)
    assert told.ByteSize() <= ENVELOPE_BYTES
    [(name, details)] = trailing_details(error)
    assert len(name) + len(base64.b64encode(details)) + len(quote(status_text(error))) + 200 <= MOST
    back = from_envelope(told)
    assert (back.reason, back.invocation_id) == (Reason.ARGUMENTS_INVALID, "i")
    left_out = len(error.violations) - len(back.violations)
    assert back.metadata.get(LEFT_OUT, "0") == str(left_out)
    assert len(back.violations) > 0 or not error.violations


def test_what_fits_is_returned_whole() -> None:
    error = MeshError(Reason.ARGUMENTS_INVALID, violations=many(20), metadata={"tool": "core.say"})
    back = from_envelope(envelope(error))
    assert (back.violations, back.metadata) == (error.violations, error.metadata)
