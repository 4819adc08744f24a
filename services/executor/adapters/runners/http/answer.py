"""Reads the answer of an HTTP service, which is untrusted input, and says what it means for the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpcore

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse, refuse_many_values
from services.executor.adapters.runners.http.retry_after import parse_rate_limit, parse_retry_after
from services.executor.adapters.runners.worker.frames import MAX_VALUES
from services.executor.domain import errors

_MAX_SHOWN = 2000
# The service says that it did not serve the request.
_NOT_SERVED = frozenset({429, 503})
_UNAUTHORIZED, _NO_CONTENT, _RATE_LIMITED = 401, 204, 429


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A complete answer."""

    status: int
    media_type: str
    encoding: str
    location: str
    retry_after: float | None
    body: bytes
    limited_for: float | None = None
    """How long the service has nothing left for us, by its RateLimit headers."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_redirect(self) -> bool:
        return self.status in (301, 302, 303, 307, 308) and bool(self.location)

    def value(self, limit: int) -> Any:
        """Return the result in the answer. Raises RESULT_INVALID, and RESULT_TOO_LARGE for too many values."""
        if self.status == _NO_CONTENT or not self.body:
            return None
        if self.encoding not in ("", "identity"):
            raise errors.external_answer_invalid("the answer is compressed although that was not asked for")
        if self.media_type == "application/json" or self.media_type.endswith("+json"):
            try:
                refuse_many_values(self.body, MAX_VALUES)
            except MeshError:
                raise errors.result_too_large(len(self.body), limit) from None
            try:
                return parse(self.body, max_bytes=limit)
            except MeshError:
                raise errors.external_answer_invalid("the answer is not strict JSON") from None
        if self.media_type.startswith("text/"):
            try:
                return self.body.decode()
            except UnicodeDecodeError:
                raise errors.external_answer_invalid("the text of the answer is not UTF-8") from None
        raise errors.external_answer_invalid("the answer is neither JSON nor text")

    def failure(self, origin: str, secrets: Sequence[str]) -> MeshError:
        """Return the error of an answer without success."""
        if self.status == _RATE_LIMITED:
            return errors.external_rate_limited(
                origin, self.limited_for if self.retry_after is None else self.retry_after
            )
        if self.status == _UNAUTHORIZED and secrets:
            return errors.credential_refused(secrets[0], self.status)
        if self.status < 500:
            return errors.external_refused(origin, self.status)
        effect = "none" if self.status in _NOT_SERVED else "unknown"
        error = errors.external_unavailable(origin, f"http_{self.status}", effect)
        error.retry_after = self.retry_after
        return error

    @property
    def text(self) -> str:
        """The beginning of the content, for the log of the tool."""
        return self.body[:_MAX_SHOWN].decode(errors="replace")


async def read_answer(response: httpcore.Response, limit: int, now: datetime) -> HttpAnswer:
    """Read an answer of at most `limit` bytes. Raises RESULT_TOO_LARGE and the errors of the connection."""
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > limit:
            raise errors.result_too_large(len(body), limit)
    return HttpAnswer(
        status=response.status,
        media_type=headers.get(b"content-type", "").partition(";")[0].strip().lower(),
        encoding=headers.get(b"content-encoding", "").strip().lower(),
        location=headers.get(b"location", ""),
        retry_after=parse_retry_after(headers.get(b"retry-after", ""), now),
        body=bytes(body),
        limited_for=parse_rate_limit({name.decode("latin-1"): value for name, value in headers.items()}, now),
    )
