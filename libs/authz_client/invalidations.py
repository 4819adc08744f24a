"""Follows the issuer's stream of revocations, and introspects single tokens while the stream is silent."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import grpc
import grpc.aio
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1.authz_service_pb2 import IntrospectTokenRequest
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub
from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub

from libs.common.auth.revocations import RevocationView, Revoked, TargetKind
from libs.common.call_context import current_call, margin
from libs.common.errors import MeshError, Reason
from libs.common.runtime.backoff import Backoff
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.single_flight import SingleFlight
from libs.common.telemetry.log import Log

# The issuer sends at least one message a second; a stream that is silent for this long is opened again.
STREAM_SILENCE = 2.5
# How long an introspection counts, while the stream is silent.
REMEMBERED_SECONDS = 1.0
_ASK_SECONDS = 2.0
_REMEMBERED = 10_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_KINDS: dict[str, TargetKind] = {"token_id": "token", "subject": "subject", "key_id": "key"}


class InvalidationFollower:
    """Keeps a revocation view up to date; one for each process."""

    def __init__(
        self, channel: grpc.aio.Channel, view: RevocationView, log: Log, *, silence: float = STREAM_SILENCE
    ) -> None:
        self._stub = TokenServiceStub(channel)
        self._view, self._log, self._silence = view, log, silence
        self._following: asyncio.Task[None] | None = None
        self._connected = True

    async def start(self) -> None:
        """Start to follow; does not wait for the issuer."""
        self._following = asyncio.create_task(self._follow_forever(), name="invalidations")

    async def stop(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow_forever(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                if await self._follow():
                    backoff.reset()
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                self._report(type(error).__name__)
            except Exception as error:
                # The loop must survive: without it no revocation would ever arrive again.
                self._log.error("invalidations cannot be followed", cause=error)
            await backoff.wait()

    async def _follow(self) -> bool:
        """Apply messages until the stream ends; return whether there was any."""
        call = self._stub.WatchInvalidations(pb.WatchInvalidationsRequest())
        received, pending = False, list[pb.WatchInvalidationsResponse]()
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    message = await call.read()
                if not isinstance(message, pb.WatchInvalidationsResponse):
                    return received
                pending.append(message)
                if not message.continued:
                    self._apply(pending)
                    received, pending = True, []
                    self._connected = True
        finally:
            call.cancel()

    def _apply(self, messages: list[pb.WatchInvalidationsResponse]) -> None:
        """Apply several messages as one: half of a snapshot would pass for a complete list."""
        self._view.apply(
            [revoked_of(revocation) for message in messages for revocation in message.revocations],
            policy_set_version=messages[-1].policy_set_version,
            snapshot=messages[0].snapshot,
        )

    def _report(self, reason: str) -> None:
        if self._connected:
            self._log.warning("issuer is unreachable", reason=reason)
        self._connected = False


def revoked_of(message: pb.Revocation) -> Revoked:
    """Read a revocation."""
    field = message.WhichOneof("target") or "token_id"
    return Revoked(
        _KINDS[field],
        getattr(message, field),
        message.revoke_time.ToMicroseconds() / 1e6,
        message.expire_time.ToMicroseconds() / 1e6 if message.HasField("expire_time") else float("inf"),
        message.tenant,
    )


class IntrospectionFallback:
    """Asks the issuer about single tokens while the revocation view is too old."""

    def __init__(self, channel: grpc.aio.Channel, *, remember: int = _REMEMBERED) -> None:
        self._stub = AuthzServiceStub(channel)
        # By the token's hash: until when the issuer's answer counts.
        self._accepted: BoundedCache[bytes, float] = BoundedCache(remember)
        self._asking = SingleFlight[bytes, None]()

    async def __call__(self, token: str, key: bytes) -> None:
        """Return if the issuer accepts the token, now or a moment ago.

        Raises the issuer's refusal, or SERVICE_UNAVAILABLE when it does not answer in time.
        """
        if self._accepted.get(key, float("-inf")) > time.monotonic():
            return
        try:
            async with asyncio.timeout(_patience()):
                await self._asking.run(key, partial(self._introspect, token, key))
        except TimeoutError:
            raise _unknown() from None
        except MeshError as error:
            # A failure is copied, because each caller adds its own metadata to it.
            raise MeshError(error.reason, message=error.message, retry_after=error.retry_after) from error

    async def _introspect(self, token: str, key: bytes) -> None:
        asked_at = time.monotonic()
        try:
            answer = await self._stub.IntrospectToken(IntrospectTokenRequest(token=token), timeout=_ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _unknown() from error
        if not answer.active:
            raise MeshError(_reason(answer.error_code))
        self._accepted.put(key, asked_at + REMEMBERED_SECONDS)


def _patience() -> float:
    """Return how long the current call can wait and still be answered in time."""
    call = current_call()
    remaining = call.remaining() if call else None
    return _ASK_SECONDS if remaining is None else min(_ASK_SECONDS, max(0.0, remaining - margin(remaining)))


def _unknown() -> MeshError:
    message = "whether the token still holds could not be established"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0)


def _reason(code: str) -> Reason:
    """Return the reason with this code; TOKEN_REVOKED for a code that this build does not know."""
    number = int(code[1:]) if code[1:].isdecimal() else 0
    return Reason(number) if number in Reason.__members__.values() else Reason.TOKEN_REVOKED
