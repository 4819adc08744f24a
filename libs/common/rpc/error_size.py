"""Errors as large as they can travel. An error leaves in the trailers of its call, and most clients of gRPC take 8 KiB of those: what is larger
reaches nobody, and its caller is told that the mesh is overloaded and should be asked again. So every envelope keeps to a size, and says what it left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolmesh.common.v1 import error_reason_pb2 as pb

from libs.common.errors import Violation

ENVELOPE_BYTES = 4608
"""With its status around it, written in base64 where that is needed, and beside the other trailers."""
LEFT_OUT = "violations_left_out"
"""The metadata that says how many violations found no room."""
# A place, a sentence, and what is the longest text that one error tells besides.
_PATH, _SENTENCE, _TEXT = 256, 300, 1000
# Where even that is too much together.
_SHORT_TEXT = 160
_CUT = "…"


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning with a mark that it goes on."""
    return text if len(text) <= most else text[: most - 1] + _CUT


def fit(message: pb.ErrorEnvelope, violations: Sequence[Violation]) -> None:
    """Complete an envelope with its violations, as many as there is room for, and cut what is too long."""
    _shorten(message, _TEXT)
    if not violations and message.ByteSize() <= ENVELOPE_BYTES:
        return
    if message.ByteSize() > ENVELOPE_BYTES // 2:
        # Many texts, or long ones: what was wrong with the call needs room too.
        _shorten(message, _SHORT_TEXT)
    _add(message, violations)


def _shorten(message: pb.ErrorEnvelope, most: int) -> None:
    if len(message.message) > most:
        message.message = cut(message.message, most)
    for name, text in list(message.metadata.items()):
        if len(text) > most:
            message.metadata[name] = cut(text, most)


def _add(message: pb.ErrorEnvelope, violations: Sequence[Violation]) -> None:
    # Kept back for the note that some are missing.
    room = ENVELOPE_BYTES - message.ByteSize() - 2 * len(LEFT_OUT)
    for place, each in enumerate(violations):
        told = pb.Violation(path=cut(each.path, _PATH), rule=each.rule, message=cut(each.message, _SENTENCE))
        # Its own size, and what Protobuf writes before it.
        room -= told.ByteSize() + 3
        if room < 0:
            message.metadata[LEFT_OUT] = str(len(violations) - place)
            return
        message.violations.append(told)
