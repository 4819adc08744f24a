"""Stores large results. The response has a reference, a preview, and an access token instead.

The stored result is already redacted. A result is not stored when its tool opted out, when it exceeds the cap, or when
the arguments contain a reference to a stored result: it could be stored and fetched again without end.
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
from libs.common.json.jsonio import dump
from services.executor.domain import errors
from services.executor.domain.model import Caller, StoredResult
from services.executor.domain.tool import Tool

PREVIEW_BYTES = 1024
PIECE_BYTES = 256 * 1024
MEDIA_TYPE = "application/json"
_TOKEN_BYTES = 32
UNAVAILABLE = "unavailable"
"""The reason of a result that is not stored because the store is unavailable."""
# The outcome of a key is kept from the end of its call, and the result is stored a little before that.
_BEFORE_THE_END = 60.0
_REFERENCE = re.compile(rb"\bresults/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


class StoredHead(NamedTuple):
    """The metadata of a stored result."""

    result_id: str
    tenant: str
    subject: str
    token_hash: bytes
    digest: str
    size: int
    media_type: str = MEDIA_TYPE


class ResultStore(Protocol):
    """The store of large results, shared by all executors."""

    async def put(self, head: StoredHead, content: bytes, *, seconds: float) -> datetime:
        """Store a result atomically, and return its expiry."""
        ...

    async def find(self, result_id: str) -> StoredHead | None:
        """Return the metadata of a result; None if it does not exist or expired."""
        ...

    async def piece(self, head: StoredHead, number: int) -> bytes | None:
        """Return a piece by its number, from 0; None if it is gone. All but the last have PIECE_BYTES."""
        ...


@dataclass(frozen=True, slots=True)
class LargeResults:
    """Decides whether a result may be stored, and stores it."""

    store: ResultStore
    seconds: float
    """The minimum lifetime of a stored result."""
    cap: int
    """The largest result that is stored, in bytes."""

    async def save(self, tool: Tool, caller: Caller, content: bytes, digest: str, *, keyed: bool) -> StoredResult:
        """Store a result that `refusal` accepts, with its digest.

        With an idempotency key it lives as long as the key's outcome is kept.

        Raises SERVICE_UNAVAILABLE when the store is unavailable and the tool is repeatable. Otherwise RESULT_TOO_LARGE,
        which is not retryable: the tool ran, and that must be stored under its key.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        head = StoredHead(new_id(), caller.tenant, caller.subject, token_hash(token), digest, len(content))
        seconds = max(self.seconds, tool.window + _BEFORE_THE_END) if keyed else self.seconds
        try:
            expires = await self.store.put(head, content, seconds=seconds)
        except MeshError as error:
            if tool.repeatable:
                raise
            raise errors.result_not_stored(head.size, tool.max_result_bytes, UNAVAILABLE) from error
        return StoredResult(f"results/{head.result_id}", preview_of(content), head.size, head.digest, expires, token)

    async def read(self, stored: StoredResult) -> bytes | None:
        """Return a whole stored result; None if any piece is gone."""
        head = await self.store.find(stored.ref.removeprefix("results/"))
        if head is None:
            return None
        pieces = [await self.store.piece(head, number) for number in range(piece_count(head.size))]
        return None if None in pieces else b"".join(piece for piece in pieces if piece is not None)

    def refusal(self, tool: Tool, arguments: dict[str, Any], size: int) -> MeshError | None:
        """Return why a large result must not be stored; None if it may."""
        if not tool.persists:
            return errors.result_not_stored(size, tool.max_result_bytes, "opt_out")
        if size > self.cap:
            return errors.result_not_stored(size, self.cap, "cap")
        if names_stored_result(arguments):
            return errors.result_not_stored(size, tool.max_result_bytes, "circular")
        return None


def names_stored_result(arguments: dict[str, Any]) -> bool:
    """Return whether arguments contain a reference to a stored result."""
    return _REFERENCE.search(dump(arguments)) is not None


def piece_count(size: int) -> int:
    """Return how many pieces a result of this size has."""
    return -(-size // PIECE_BYTES)


def token_hash(token: str) -> bytes:
    """Return the hash of an access token. The token is random, so a plain hash is enough."""
    return hashlib.sha256(token.encode()).digest()


def preview_of(content: bytes) -> bytes:
    """Return the beginning of a result, truncated at a character boundary."""
    return content[:PREVIEW_BYTES].decode("utf-8", "ignore").encode()
