"""Following the issuer, and asking it when it is silent: over real mutual TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc

from libs.authz_client import invalidations as module
from libs.authz_client.invalidations import IntrospectionFallback, InvalidationFollower
from libs.common.auth.revocations import RevocationView
from libs.common.auth.tokens import TokenVerifier
from libs.common.errors import MeshError, Reason
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import server_credentials
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address, ProcessSettings, load
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from tests.fixtures import AUDIENCE, ISSUER
from tests.harness.servers.issuer import Invalidations

SUBJECT = "did:web:toolmesh.local:users:alice"


class Issuer(authz_rpc.AuthzServiceServicer):
    """Answers about tokens what a test tells it to, when a test lets it."""

    def __init__(self) -> None:
        self.invalidations = Invalidations()  # type: ignore[abstract]
        self.answer = authz_pb.IntrospectTokenResponse(active=True)
        self.asked = 0
        self.broken = False
        self.answering = asyncio.Event()
        self.answering.set()

    async def IntrospectToken(self, request: Any, context: Any) -> Any:
        self.asked += 1
        await self.answering.wait()
        if self.broken:
            await context.abort(grpc.StatusCode.INTERNAL, "broken")
        return self.answer


@pytest.fixture
async def issuer() -> Issuer:
    return Issuer()  # type: ignore[abstract]


@pytest.fixture
async def channel(
    issuer: Issuer, process_environment: Callable[[str], dict[str, str]]
) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    authz_rpc.add_AuthzServiceServicer_to_server(issuer, server)
    issuer.invalidations.add(server)
    port = server.add_secure_port(
        "127.0.0.1:0", server_credentials(load(ProcessSettings, process_environment("authz")))
    )
    await server.start()
    settings = load(ProcessSettings, process_environment("executor"))
    async with channel_to("authz", Address("127.0.0.1", port), settings) as opened:
        yield opened
    await server.stop(None)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (the view has no event for a change)
            await asyncio.sleep(0.01)


async def test_a_view_follows_revocations_policies_and_signs_of_life(channel: grpc.aio.Channel, issuer: Issuer) -> None:
    issuer.invalidations.revoke(key_id="key-1")
    view = RevocationView(SystemClock())
    follower = InvalidationFollower(channel, view, Log("test", level="error"))
    await follower.start()
    await until(lambda: view.revoked_keys() == {"key-1"})
    assert view.believed()
    assert view.policy_set_version == "set-1"
    issuer.invalidations.revoke(key_id="key-2")
    issuer.invalidations.activate("set-2")
    await until(lambda: view.revoked_keys() == {"key-1", "key-2"} and view.policy_set_version == "set-2")
    await follower.stop()


async def test_a_stream_that_falls_silent_is_opened_anew(channel: grpc.aio.Channel, issuer: Issuer) -> None:
    view = RevocationView(SystemClock())
    follower = InvalidationFollower(channel, view, Log("test", level="error"), silence=0.5)
    await follower.start()
    await until(view.believed)
    issuer.invalidations.speaking = False
    await until(lambda: issuer.invalidations.streams > 1)
    issuer.invalidations.speaking = True
    issuer.invalidations.revoke(key_id="key-1")
    await until(lambda: view.revoked_keys() == {"key-1"})
    await follower.stop()


async def test_a_word_that_breaks_off_in_the_middle_does_not_count(channel: grpc.aio.Channel, issuer: Issuer) -> None:
    for key in ("key-1", "key-2"):
        issuer.invalidations.revoke(key_id=key)
    issuer.invalidations.breaking_off = 2
    view, heard = RevocationView(SystemClock()), list[frozenset[str]]()
    view.listen(lambda: heard.append(view.revoked_keys()))
    follower = InvalidationFollower(channel, view, Log("test", level="error"))
    await follower.start()
    await until(view.believed)
    assert (heard, issuer.invalidations.streams) == ([{"key-1", "key-2"}], 3)  # type: ignore[comparison-overlap]
    await follower.stop()


def verifier(signer: Any, channel: grpc.aio.Channel, clock: ManualClock) -> TokenVerifier:
    return TokenVerifier(
        signer.fetch_jwks,
        issuer=ISSUER,
        audience=AUDIENCE,
        revocations=RevocationView(clock),
        second_opinion=IntrospectionFallback(channel),
    )


async def refusal(awaitable: Any) -> Reason:
    with pytest.raises(MeshError) as caught:
        await awaitable
    return caught.value.reason


async def test_a_verifier_makes_no_call_while_the_view_is_current(
    channel: grpc.aio.Channel, issuer: Issuer, signer: Any
) -> None:
    verify = verifier(signer, channel, ManualClock())
    assert verify.revocations is not None
    verify.revocations.apply((), policy_set_version="set-1", snapshot=True)
    for _ in range(3):
        assert (await verify.verify(signer.mint())).subject == SUBJECT
    assert issuer.asked == 0


async def test_while_the_view_is_silent_the_issuer_is_asked_once_a_second_for_each_token(
    channel: grpc.aio.Channel, issuer: Issuer, signer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, token = verifier(signer, channel, ManualClock()), signer.mint()
    # Asked together, they wait for one answer.
    issuer.answering.clear()
    asking = [asyncio.ensure_future(verify.verify(token)) for _ in range(5)]
    await until(lambda: issuer.asked)
    issuer.answering.set()
    assert {identity.subject for identity in await asyncio.gather(*asking)} == {SUBJECT}
    await verify.verify(token)
    assert issuer.asked == 1
    await verify.verify(signer.mint())
    assert issuer.asked == 2
    now = module.time.monotonic()  # type: ignore[attr-defined]
    monkeypatch.setattr(module.time, "monotonic", lambda: now + module.REMEMBERED_SECONDS + 0.1)  # type: ignore[attr-defined]
    await verify.verify(token)
    assert issuer.asked == 3


@pytest.mark.parametrize(
    ("code", "reason"),
    [("E3212", Reason.TOKEN_REVOKED), ("E3201", Reason.TOKEN_EXPIRED), ("odd", Reason.TOKEN_REVOKED)],
)
async def test_what_the_issuer_says_against_a_token_is_what_the_caller_gets(
    channel: grpc.aio.Channel, issuer: Issuer, signer: Any, code: str, reason: Reason
) -> None:
    verify = verifier(signer, channel, ManualClock())
    issuer.answer = authz_pb.IntrospectTokenResponse(error_code=code)
    assert await refusal(verify.verify(signer.mint())) is reason


async def test_an_issuer_that_does_not_answer_means_a_refusal_that_may_be_tried_again(
    channel: grpc.aio.Channel, issuer: Issuer, signer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ASK_SECONDS", 0.2)
    verify = verifier(signer, channel, ManualClock())
    issuer.answering.clear()
    assert await refusal(verify.verify(signer.mint())) is Reason.SERVICE_UNAVAILABLE
    issuer.answering.set()


async def test_an_issuer_that_answers_with_a_failure_means_the_same(
    channel: grpc.aio.Channel, issuer: Issuer, signer: Any
) -> None:
    verify = verifier(signer, channel, ManualClock())
    issuer.broken = True
    token = signer.mint()
    for _ in range(2):
        assert await refusal(verify.verify(token)) is Reason.SERVICE_UNAVAILABLE
    assert issuer.asked == 2


async def test_without_anybody_to_ask_a_silent_view_refuses(signer: Any) -> None:
    alone = TokenVerifier(
        signer.fetch_jwks, issuer=ISSUER, audience=AUDIENCE, revocations=RevocationView(ManualClock())
    )
    assert await refusal(alone.verify(signer.mint())) is Reason.SERVICE_UNAVAILABLE


async def test_a_remembered_token_is_refused_once_it_is_revoked(
    channel: grpc.aio.Channel, issuer: Issuer, signer: Any
) -> None:
    verify, token = verifier(signer, channel, ManualClock()), signer.mint(jti="one")
    view = verify.revocations
    assert view is not None
    view.apply((), policy_set_version="", snapshot=True)
    await verify.verify(token)
    view.apply([module.Revoked("token", "one", 0, 1e12)], policy_set_version="", snapshot=False)  # type: ignore[attr-defined]
    assert await refusal(verify.verify(token)) is Reason.TOKEN_REVOKED
