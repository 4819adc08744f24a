"""Large results: stored instead of embedded, and answered with a reference, a preview, and a token that opens it until it expires.

What is stored is what the caller may see: obligations were kept before. A result is not stored when its tool opted out, when it is larger than
anything may be, or when the call was itself given a reference to a stored result: what was read from the store and is still too large
would be stored again, and read again, without end.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.json.canonical import digest_bytes
from libs.common.json.jsonio import dump
from services.executor.domain import errors
from services.executor.domain.model import Caller, StoredResult
from services.executor.domain.tool import Tool

PREVIEW_BYTES = 1024
PIECE_BYTES = 256 * 1024
MEDIA_TYPE = "application/json"
_TOKEN_BYTES = 32
UNAVAILABLE = "unavailable"
"""Why a result is not stored when nobody takes it now."""
# A key is remembered from when its call has ended, and its result is stored a little before.
_BEFORE_THE_END = 60.0
_REFERENCE = re.compile(rb"\bresults/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


class StoredHead(NamedTuple):
    """What is known about a stored result without reading it."""

    result_id: str
    tenant: str
    subject: str
    token_hash: bytes
    digest: str
    size: int
    media_type: str = MEDIA_TYPE


class ResultStore(Protocol):
    """Where large results are, shared by all executors."""

    async def put(self, head: StoredHead, content: bytes, *, seconds: float) -> datetime:
        """Store a result whole or not at all, and return when it expires."""
        ...

    async def find(self, result_id: str) -> StoredHead | None:
        """Return what is known about a result; None if there is none or it expired."""
        ...

    async def piece(self, head: StoredHead, number: int) -> bytes | None:
        """Return the piece of this number, from 0; None if it is gone or can no longer be read. All but the last have PIECE_BYTES."""
        ...


@dataclass(frozen=True, slots=True)
class LargeResults:
    """Decides whether a result may be stored, and stores it."""

    store: ResultStore
    seconds: float
    """How long a result is kept at least."""
    cap: int
    """The largest result that is stored, in bytes."""

    async def save(self, tool: Tool, caller: Caller, content: bytes, *, keyed: bool) -> StoredResult:
        """Store a result that `refusal` does not refuse. With an idempotency key it lives at least as long as the key is remembered, so
        that every replay can answer with the same reference.

        Raises SERVICE_UNAVAILABLE when it cannot be stored now and its tool may simply run again; where it may not, RESULT_TOO_LARGE, which
        invites nobody to try: the tool ran, and its key must remember that.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        head = StoredHead(
            new_id(), caller.tenant, caller.subject, token_hash(token), digest_bytes(content), len(content)
        )
        seconds = max(self.seconds, tool.window + _BEFORE_THE_END) if keyed else self.seconds
        try:
            expires = await self.store.put(head, content, seconds=seconds)
        except MeshError as error:
            if tool.repeatable:
                raise
            raise errors.result_not_stored(head.size, tool.max_result_bytes, UNAVAILABLE) from error
        return StoredResult(f"results/{head.result_id}", preview_of(content), head.size, head.digest, expires, token)

    async def read(self, stored: StoredResult) -> bytes | None:
        """Return a stored result whole; None if any of it is gone."""
        head = await self.store.find(stored.ref.removeprefix("results/"))
        if head is None:
            return None
        pieces = [await self.store.piece(head, number) for number in range(piece_count(head.size))]
        return None if None in pieces else b"".join(piece for piece in pieces if piece is not None)

    def refusal(self, tool: Tool, arguments: dict[str, Any], size: int) -> MeshError | None:
        """Return why a result that is too large to be embedded may not be stored either; None if it may."""
        if not tool.persists:
            return errors.result_not_stored(size, tool.max_result_bytes, "opt_out")
        if size > self.cap:
            return errors.result_not_stored(size, self.cap, "cap")
        if names_stored_result(arguments):
            return errors.result_not_stored(size, tool.max_result_bytes, "circular")
        return None


def names_stored_result(arguments: dict[str, Any]) -> bool:
    """Say whether arguments hold a reference to a stored result, anywhere."""
    return _REFERENCE.search(dump(arguments)) is not None


def piece_count(size: int) -> int:
    """Return how many pieces a result of this size has."""
    return -(-size // PIECE_BYTES)


def token_hash(token: str) -> bytes:
    """Return what is stored of a token. The token is random, so a plain hash keeps it."""
    return hashlib.sha256(token.encode()).digest()


def preview_of(content: bytes) -> bytes:
    """Return the beginning of a result, cut where a character ends."""
    return content[:PREVIEW_BYTES].decode("utf-8", "ignore").encode()
