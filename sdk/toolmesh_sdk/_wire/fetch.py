"""A stored result as it arrives: piece by piece, resumed where a stream was lost, and never more or other than was promised."""

from __future__ import annotations

import dataclasses
import hashlib

from toolmesh.common.v1.error_table import Reason
from toolmesh.executor.v1 import executor_service_pb2 as pb

from toolmesh_sdk._wire.envelope import Stored
from toolmesh_sdk._wire.retry import Attempts
from toolmesh_sdk.errors import ToolmeshError, error_from, error_of

MAX_FETCHED_BYTES = 64 * 1024 * 1024


class Fetch:
    """Where a fetch stands: what has arrived, what the whole must be, and the attempts that it has."""

    def __init__(self, stored: Stored | str, access_token: str, max_bytes: int, attempts: Attempts) -> None:
        known = stored if isinstance(stored, Stored) else None
        self._ref = known.ref if known else str(stored)
        self._token = access_token or (known.access_token if known else "")
        self._limit, self._attempts = max_bytes, attempts
        self._content = bytearray()
        # What the envelope said about the whole is what arrives must be; without one, what the first piece says.
        self._whole: tuple[int, str] | None = (known.size, known.digest) if known else None
        if known:
            self._refuse_too_large(known.size)

    @property
    def request(self) -> pb.FetchResultRequest:
        """Ask for everything that has not arrived yet."""
        return pb.FetchResultRequest(ref=self._ref, access_token=self._token, offset=len(self._content))

    def begin(self) -> float:
        """Count an attempt and return the seconds that it has."""
        return self._attempts.begin()

    def saw(self, piece: pb.FetchResultResponse) -> None:
        """Add a piece. Raises RESULT_TOO_LARGE past the caller's limit, RESULT_INVALID where it does not fit what was promised."""
        whole = (piece.size_bytes, piece.digest)
        if self._whole is None:
            self._refuse_too_large(piece.size_bytes)
            self._whole = whole
        arrived = len(self._content)
        if whole != self._whole or piece.offset != arrived or arrived + len(piece.content) > self._whole[0]:
            raise _broken("a piece does not belong where it came")
        self._content += piece.content

    def wait_after(self, error: ToolmeshError | None) -> float | None:
        """Return how long to wait before the rest is asked for; None when everything is there. Raises the error when it cannot be had."""
        if error is None and self._complete():
            return None
        failure = error or error_of(Reason.SERVICE_UNAVAILABLE, message="The stream ended early.", answered=False)
        wait = self._attempts.wait_after(failure)
        if wait is None:
            raise failure
        return wait

    def content(self) -> bytes:
        """Return the whole. Raises RESULT_INVALID where its digest is another."""
        content = bytes(self._content)
        if self._whole is None or f"sha256:{hashlib.sha256(content).hexdigest()}" != self._whole[1]:
            raise _broken("the digest is another")
        return content

    def _complete(self) -> bool:
        return self._whole is not None and len(self._content) == self._whole[0]

    def _refuse_too_large(self, size: int) -> None:
        if size > self._limit:
            facts = {"size_bytes": str(size), "limit_bytes": str(self._limit)}
            raise error_of(Reason.RESULT_TOO_LARGE, message="The stored result exceeds max_bytes.", metadata=facts)


def _broken(what: str) -> ToolmeshError:
    failure = error_of(Reason.RESULT_INVALID, message=f"What arrived is not the stored result: {what}.").failure
    return error_from(dataclasses.replace(failure, resolution="Fetch it again; report it if it repeats."))
