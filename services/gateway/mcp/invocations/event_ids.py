"""Names the place in a stream where a client that was cut off continues, on any replica."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec

from services.gateway.mcp.messages import MAX_ID_LENGTH

MAX_EVENT_ID_LENGTH = 2048
ProgressToken = Annotated[str, msgspec.Meta(max_length=MAX_ID_LENGTH)] | int | None


class EventId(msgspec.Struct, frozen=True, array_like=True):
    """An event of an invocation, and the request that its stream answers. It grants nothing: the executor shows an
    invocation to its caller alone."""

    invocation_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f-]{36}$")]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    request_id: Annotated[str, msgspec.Meta(max_length=MAX_ID_LENGTH)] | int
    progress_token: ProgressToken = None
    is_task: bool = False

    @property
    def invocation(self) -> str:
        """The resource name of the invocation."""
        return f"invocations/{self.invocation_id}"


def encode_event_id(event: EventId) -> str:
    """Return the id as it is sent."""
    return base64.urlsafe_b64encode(msgspec.json.encode(event)).decode().rstrip("=")


def decode_event_id(text: str) -> EventId | None:
    """Return the id that a client sent; None for one that is not ours."""
    if not text or len(text) > MAX_EVENT_ID_LENGTH:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=EventId)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        return None
