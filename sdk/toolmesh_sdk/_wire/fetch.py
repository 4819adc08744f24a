"""Assembles a stored result from a stream of chunks, resumes lost streams, and verifies size and digest."""

from __future__ import annotations

import dataclasses
import hashlib

from toolmesh.common.v1.error_table import Reason
from toolmesh.executor.v1 import executor_service_pb2 as pb

from toolmesh_sdk._wire.envelope import StoredResult
from toolmesh_sdk._wire.retry import Attempts
from toolmesh_sdk.errors import ToolmeshError, error_for_reason, error_from_failure

MAX_FETCHED_BYTES = 64 * 1024 * 1024


class Fetch:
    """The state of a fetch: the received bytes, the expected size and digest, and the remaining attempts."""

    def __init__(self, stored: StoredResult | str, access_token: str, max_bytes: int, attempts: Attempts) -> None:
        known = stored if isinstance(stored, StoredResult) else None
        self._ref = known.ref if known else str(stored)
        self._token = access_token or (known.access_token if known else "")
        self._limit, self._attempts = max_bytes, attempts
        self._content = bytearray()
        # Size and digest, from the envelope if there is one, else from the first chunk.
        self._expected: tuple[int, str] | None = (known.size, known.digest) if known else None
        if known:
            self._refuse_too_large(known.size)

    @property
    def request(self) -> pb.FetchResultRequest:
        """The request for the missing rest."""
        return pb.FetchResultRequest(ref=self._ref, access_token=self._token, offset=len(self._content))

    def start_attempt(self) -> float:
        """Count an attempt and return its timeout in seconds."""
        return self._attempts.start()

    def add(self, chunk: pb.FetchResultResponse) -> None:
        """Add a chunk. Raises RESULT_TOO_LARGE past the caller's limit, RESULT_INVALID for an unexpected chunk."""
        announced = (chunk.size_bytes, chunk.digest)
        if self._expected is None:
            self._refuse_too_large(chunk.size_bytes)
            self._expected = announced
        received = len(self._content)
        if announced != self._expected or chunk.offset != received or received + len(chunk.content) > self._expected[0]:
            raise _invalid_result("a chunk is out of place")
        self._content += chunk.content

    def wait_after(self, error: ToolmeshError | None) -> float | None:
        """Return the wait before the next attempt; None if the result is complete. Raises the last error."""
        if error is None and self._is_complete():
            return None
        failure = error or error_for_reason(
            Reason.SERVICE_UNAVAILABLE, message="The stream ended early.", answered=False
        )
        wait = self._attempts.wait_after(failure)
        if wait is None:
            raise failure
        return wait

    def content(self) -> bytes:
        """Return the complete result. Raises RESULT_INVALID if its digest differs."""
        content = bytes(self._content)
        if self._expected is None or f"sha256:{hashlib.sha256(content).hexdigest()}" != self._expected[1]:
            raise _invalid_result("the digest differs")
        return content

    def _is_complete(self) -> bool:
        return self._expected is not None and len(self._content) == self._expected[0]

    def _refuse_too_large(self, size: int) -> None:
        if size > self._limit:
            metadata = {"size_bytes": str(size), "limit_bytes": str(self._limit)}
            raise error_for_reason(
                Reason.RESULT_TOO_LARGE, message="The stored result exceeds max_bytes.", metadata=metadata
            )


def _invalid_result(problem: str) -> ToolmeshError:
    failure = error_for_reason(
        Reason.RESULT_INVALID, message=f"The received bytes are not the stored result: {problem}."
    ).failure
    return error_from_failure(dataclasses.replace(failure, resolution="Fetch it again; report it if it repeats."))
