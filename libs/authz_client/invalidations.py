"""How a service keeps up with what the issuer takes back: it follows the issuer's stream, and asks when the stream is silent."""

from __future__ import annotations

import asyncio
import random
import time
from contextvars import Context

import grpc
import grpc.aio
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1.authz_service_pb2 import IntrospectTokenRequest
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub
from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceStub

from libs.common.auth.revocations import RevocationView, Revoked, TargetKind
from libs.common.call_context import current_call, margin
from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log

# The issuer speaks at least once a second; a stream that is silent for this long is opened anew.
STREAM_SILENCE = 2.5
# How long an answer about one token counts, while the stream is silent.
REMEMBERED_SECONDS = 1.0
_ASK_SECONDS = 2.0
_REMEMBERED = 10_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_KINDS: dict[str, TargetKind] = {"token_id": "token", "subject": "subject", "key_id": "key"}


class InvalidationFollower:
    """Keeps a view up to date for as long as the issuer is there; one for each process."""

    def __init__(
        self, channel: grpc.aio.Channel, view: RevocationView, log: Log, *, silence: float = STREAM_SILENCE
    ) -> None:
        self._stub = TokenServiceStub(channel)
        self._view, self._log, self._silence = view, log, silence
        self._following: asyncio.Task[None] | None = None
        self._well = True

    async def start(self) -> None:
        """Begin to follow; returns at once, whether or not the issuer is there."""
        self._following = asyncio.create_task(self._follow_forever(), name="invalidations")

    async def stop(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow_forever(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            heard = False
            try:
                heard = await self._follow()
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                self._report(type(error).__name__)
            except Exception as error:
                # Whatever it was, the next stream may be better; without one nothing would ever be heard again.
                self._log.error("invalidations cannot be followed", cause=error)
            pause = _FIRST_PAUSE if heard else min(pause * 2, _LONGEST_PAUSE)
            # Spread out, so that a restarted issuer is not met by everyone at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311

    async def _follow(self) -> bool:
        """Apply messages until the stream ends; say whether there was any."""
        call = self._stub.WatchInvalidations(pb.WatchInvalidationsRequest())
        heard, begun = False, list[pb.WatchInvalidationsResponse]()
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    message = await call.read()
                if not isinstance(message, pb.WatchInvalidationsResponse):
                    return heard
                begun.append(message)
                if not message.continued:
                    self._apply(begun)
                    heard, begun = True, []
                    self._well = True
        finally:
            call.cancel()

    def _apply(self, messages: list[pb.WatchInvalidationsResponse]) -> None:
        """Take over what several messages say as one: half of what is revoked would be a list with holes that is believed."""
        self._view.apply(
            [revoked_of(one) for message in messages for one in message.revocations],
            policy_set_version=messages[-1].policy_set_version,
            snapshot=messages[0].snapshot,
        )

    def _report(self, reason: str) -> None:
        if self._well:
            self._log.warning("issuer is not heard", reason=reason)
        self._well = False


def revoked_of(message: pb.Revocation) -> Revoked:
    """Read a revocation."""
    field = message.WhichOneof("target") or "token_id"
    return Revoked(
        _KINDS[field],
        getattr(message, field),
        message.revoke_time.ToMicroseconds() / 1e6,
        message.expire_time.ToMicroseconds() / 1e6 if message.HasField("expire_time") else float("inf"),
    )


class IntrospectionFallback:
    """Asks the issuer about one token at a time, for as long as the view cannot be believed."""

    def __init__(self, channel: grpc.aio.Channel, *, remember: int = _REMEMBERED) -> None:
        self._stub = AuthzServiceStub(channel)
        self._remember = remember
        self._good: dict[bytes, float] = {}
        self._asking: dict[bytes, asyncio.Task[None]] = {}

    async def __call__(self, token: str, key: bytes) -> None:
        """Return if the issuer accepts the token, now or a moment ago. Raises what the issuer says against it, and
        SERVICE_UNAVAILABLE when the issuer says nothing in time: what cannot be known to be good is refused."""
        if self._good.get(key, float("-inf")) > time.monotonic():
            return
        asking = self._asking.get(key) or self._lead(token, key)
        await asyncio.wait({asking}, timeout=_patience())
        if not asking.done() or asking.cancelled():
            raise _unknown()
        error = asking.exception()
        if isinstance(error, MeshError):
            # A failure is copied, because each caller adds its own facts to it.
            raise MeshError(error.reason, message=error.message, retry_after=error.retry_after) from error
        if error is not None:
            raise error

    def _lead(self, token: str, key: bytes) -> asyncio.Task[None]:
        """Ask for everyone who comes with the same token meanwhile: in nobody's name, and in nobody's time."""
        asking = asyncio.get_running_loop().create_task(self._ask(token, key), context=Context())
        self._asking[key] = asking
        asking.add_done_callback(lambda done: self._asking.pop(key))
        return asking

    async def _ask(self, token: str, key: bytes) -> None:
        asked_at = time.monotonic()
        try:
            answer = await self._stub.IntrospectToken(IntrospectTokenRequest(token=token), timeout=_ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _unknown() from error
        if not answer.active:
            raise MeshError(_reason(answer.error_code))
        if len(self._good) >= self._remember:
            self._good.clear()
        self._good[key] = asked_at + REMEMBERED_SECONDS


def _patience() -> float:
    """Return how long the present call can wait and still be answered in time."""
    call = current_call()
    remaining = call.remaining() if call else None
    return _ASK_SECONDS if remaining is None else min(_ASK_SECONDS, max(0.0, remaining - margin(remaining)))


def _unknown() -> MeshError:
    message = "whether the token still holds could not be established"
    return MeshError(Reason.SERVICE_UNAVAILABLE, message=message, retry_after=1.0)


def _reason(code: str) -> Reason:
    """Return the reason with this code; a code that this build does not know is no less a refusal."""
    number = int(code[1:]) if code[1:].isdecimal() else 0
    return Reason(number) if number in Reason.__members__.values() else Reason.TOKEN_REVOKED
