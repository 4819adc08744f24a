"""Limits the size of error envelopes.

An error is sent in trailers, and most gRPC clients accept 8 KiB of those; a larger error would reach the caller as
overload. An envelope that is too large says how much was left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolmesh.common.v1 import error_reason_pb2 as pb

from libs.common.errors import Violation

ENVELOPE_BYTES = 4608
"""The envelope's share of the trailers, with base64 and the other trailers counted."""
LEFT_OUT = "violations_left_out"
"""The metadata key with the number of omitted violations."""
# Longest path, violation message and error text.
_PATH, _SENTENCE, _TEXT = 256, 300, 1000
# Longest text of an envelope that is still too large.
_SHORT_TEXT = 160
_CUT = "…"


def cut(text: str, most: int) -> str:
    """Return the text, shortened with an ellipsis if it is too long."""
    return text if len(text) <= most else text[: most - 1] + _CUT


def fit(message: pb.ErrorEnvelope, violations: Sequence[Violation]) -> None:
    """Add as many violations as fit, and shorten long texts."""
    _shorten(message, _TEXT)
    if not violations and message.ByteSize() <= ENVELOPE_BYTES:
        return
    if message.ByteSize() > ENVELOPE_BYTES // 2:
        # Leave room for the violations.
        _shorten(message, _SHORT_TEXT)
    _add(message, violations)


def _shorten(message: pb.ErrorEnvelope, most: int) -> None:
    if len(message.message) > most:
        message.message = cut(message.message, most)
    for name, text in list(message.metadata.items()):
        if len(text) > most:
            message.metadata[name] = cut(text, most)


def _add(message: pb.ErrorEnvelope, violations: Sequence[Violation]) -> None:
    # Reserved for the number of omitted violations.
    room = ENVELOPE_BYTES - message.ByteSize() - 2 * len(LEFT_OUT)
    for index, violation in enumerate(violations):
        entry = pb.Violation(
            path=cut(violation.path, _PATH), rule=violation.rule, message=cut(violation.message, _SENTENCE)
        )
        # Its own size and its Protobuf tag and length.
        room -= entry.ByteSize() + 3
        if room < 0:
            message.metadata[LEFT_OUT] = str(len(violations) - index)
            return
        message.violations.append(entry)
