"""Runs the language subprocess on demand and sends it requests."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
from prometheus_client import Counter

from libs.common.telemetry.log import Log
from services.registry.domain.discovery.ports import LanguageUnavailableError

MODEL = "all-minilm-l6-v2"
TOKENIZERS = ("o200k_base", "cl100k_base")
# How long the process lives after a request. Background work keeps it briefly, because no caller waits for the next
# batch.
LINGER_SECONDS = 60.0
BACKGROUND_LINGER_SECONDS = 1.0
# After this time the process is considered stuck.
_TIMEOUT_SECONDS = 30.0
_LINE_LIMIT = 64 * 1024 * 1024
_COMMAND = (sys.executable, "-m", "services.registry.adapters.language")
# The matrix products outside the model's layers are too small for threads.
_CHILD_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

starts_total = Counter("toolmesh_registry_language_starts_total", "Starts of the language process.")
questions_total = Counter(
    "toolmesh_registry_language_questions_total",
    "Requests to the language process, by kind and outcome.",
    ["kind", "outcome"],
)


class LanguageProcess:
    """Sends one request at a time, in order. A process that ends or hangs fails only the current request."""

    model = MODEL
    tokenizers = TOKENIZERS

    def __init__(
        self,
        log: Log,
        *,
        linger: float = LINGER_SECONDS,
        background_linger: float = BACKGROUND_LINGER_SECONDS,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._log, self._linger, self._background_linger = log, linger, background_linger
        self._command = command
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def embed(self, texts: Sequence[str], *, background: bool = False) -> list[bytes]:
        """Return the embedding of each text as half floats. Raises LanguageUnavailableError."""
        linger = self._background_linger if background else self._linger
        response = await self._request("embed", {"embed": list(texts)}, linger)
        return [base64.b64decode(vector) for vector in response["vectors"]]

    async def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        """Return the token count of each text with one of `tokenizers`. Raises LanguageUnavailableError."""
        response = await self._request("count", {"count": list(texts), "tokenizer": tokenizer}, self._linger)
        return [int(count) for count in response["counts"]]

    @property
    def pid(self) -> int | None:
        """The process id while the process runs."""
        return self._process.pid if self._process is not None else None

    async def stop(self) -> None:
        """Stop the process and cancel pending requests."""
        for exchange in self._tasks:
            exchange.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self._end()

    async def _request(self, kind: str, request: Mapping[str, Any], linger: float) -> dict[str, Any]:
        # A cancelled caller must not leave half a response in the pipe.
        exchange = asyncio.ensure_future(self._exchange(kind, request, linger))
        self._tasks.add(exchange)
        exchange.add_done_callback(self._tasks.discard)
        exchange.add_done_callback(_mark_retrieved)
        return await asyncio.shield(exchange)

    async def _exchange(self, kind: str, request: Mapping[str, Any], linger: float) -> dict[str, Any]:
        async with self._lock:
            try:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    response = await self._roundtrip(request)
            except asyncio.CancelledError:
                await self._end()
                raise
            except Exception as error:
                # Event loops report a broken pipe with different exceptions; in any case the next request starts a new
                # process.
                await self._end()
                questions_total.labels(kind, "failed").inc()
                self._log.warning("language process does not answer", kind=kind, error=type(error).__name__)
                raise LanguageUnavailableError(kind) from error
            self._extend_lifetime(linger)
        if "error" in response:
            questions_total.labels(kind, "refused").inc()
            self._log.warning("language process cannot answer", kind=kind, error=response["error"])
            raise LanguageUnavailableError(kind)
        questions_total.labels(kind, "answered").inc()
        return response

    async def _roundtrip(self, request: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.returncode is not None:
            process = await self._start()
        if process.stdin is None or process.stdout is None:
            raise OSError("the language process has no pipes")
        process.stdin.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            raise OSError("the language process ended")
        answer: dict[str, Any] = orjson.loads(line)
        return answer

    async def _start(self) -> Process:
        starts_total.inc()
        environment = {**_environment_without_settings(), **_CHILD_ENVIRONMENT}
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, env=environment, limit=_LINE_LIMIT
        )
        return self._process

    def _extend_lifetime(self, linger: float) -> None:
        loop = asyncio.get_running_loop()
        self._until = max(self._until, loop.time() + linger)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._expire)

    def _expire(self) -> None:
        if self._lock.locked():
            # A request is running and will extend the lifetime.
            return
        ending = asyncio.ensure_future(self._end_if_expired())
        self._tasks.add(ending)
        ending.add_done_callback(self._tasks.discard)

    async def _end_if_expired(self) -> None:
        async with self._lock:
            if asyncio.get_running_loop().time() >= self._until:
                await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()


def _environment_without_settings() -> dict[str, str]:
    """Return the environment without the registry's settings, so that the subprocess gets no secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}


def _mark_retrieved(exchange: asyncio.Future[Any]) -> None:
    # The failure was logged where it happened; this marks the exception as retrieved.
    if not exchange.cancelled():
        exchange.exception()
