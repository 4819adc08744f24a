"""Names the place in the stream of a call where a client that was cut off continues, on any replica."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Annotated

import msgspec

from libs.common.errors import MeshError, Reason, Violation

HEADER = "last-event-id"
_MAX_LENGTH = 512


class StreamEventId(msgspec.Struct, frozen=True, array_like=True):
    """An event of an invocation. It grants nothing: the executor shows an invocation to its caller alone."""

    invocation_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f-]{36}$")]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    call_digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

    @property
    def invocation(self) -> str:
        """The resource name of the invocation."""
        return f"invocations/{self.invocation_id}"

    def encoded(self) -> str:
        """Return the id as it is sent."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def call_digest(tool: str, arguments: bytes) -> str:
    """Return the digest of a call: an event of one call is of no use for another."""
    return hashlib.sha256(f"{len(tool)}:{tool}".encode() + arguments).hexdigest()


def parse_event_id(text: str, digest: str) -> StreamEventId:
    """Return the id that a client sent. Raises INVALID_REQUEST for one that is not of this very call."""
    try:
        if len(text) > _MAX_LENGTH:
            raise ValueError
        event = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=StreamEventId)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        event = None
    if event is None or event.call_digest != digest:
        violation = Violation(
            HEADER, "form", "must be the id of an event of this call; leave it out to start a new call"
        )
        raise MeshError(Reason.INVALID_REQUEST, violations=[violation])
    return event
