"""The state that a stateless client returns with its answer: which question of which invocation it is about."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Annotated

import msgspec
from mcp_types.jsonrpc import INVALID_PARAMS

from services.gateway.mcp.invocations.questions import Form, Question
from services.gateway.mcp.protocol import ProtocolError

_MAX_LENGTH = 2048


class RequestState(msgspec.Struct, frozen=True, array_like=True):
    """A waiting call. It grants nothing: the executor shows an invocation to its caller alone."""

    invocation_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f-]{36}$")]
    input_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    form: Form
    sequence: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    call_digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    keys: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], ...]
    """What the client was asked for."""

    @property
    def question(self) -> Question:
        """The question that was asked."""
        return Question(self.invocation_id, self.input_id, self.form)


def digest_of(tool: str, arguments: bytes) -> str:
    """Return the digest of a call: the state of one call is of no use for another."""
    return hashlib.sha256(f"{len(tool)}:{tool}".encode() + arguments).hexdigest()


def encode_state(state: RequestState) -> str:
    """Return the state as it is sent."""
    return base64.urlsafe_b64encode(msgspec.json.encode(state)).decode().rstrip("=")


def decode_state(text: str, call_digest: str) -> RequestState:
    """Return the state of a call. Raises ProtocolError for one that is damaged or of another call."""
    try:
        if len(text) > _MAX_LENGTH:
            raise ValueError
        state = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=RequestState)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        state = None
    if state is None or state.call_digest != call_digest:
        raise ProtocolError(INVALID_PARAMS, "the requestState is not one of this call")
    return state
