"""Revocation over gRPC: targets, permissions and invalidation messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc.aio
import jwt
import pytest
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant

from libs.authz_client.invalidations import InvalidationFollower
from libs.common.auth.identity import TokenLineage
from libs.common.auth.revocations import RevocationView
from libs.common.errors import MeshError, Reason
from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.telemetry.log import Log
from services.authz.convert import revocations as convert
from services.authz.domain.model import Invalidation, Revocation, RevocationTarget
from services.authz.tests.conftest import ALICE, SECOND

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOB = "did:web:toolmesh.local:users:bob"
AGENT = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"


class Tokens:
    """The token service as various peers reach it."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh
        self.operator = rpc.TokenServiceStub(mesh.channel("operator"))
        self.edge = rpc.TokenServiceStub(mesh.channel("edge"))
        self.executor = rpc.TokenServiceStub(mesh.channel("executor"))

    async def revoke(self, token: str = "", reason: str = "lost", **target: str) -> pb.Revocation:
        """Revoke as the operator, or as a caller with a token."""
        request = pb.RevokeTokenRequest(reason=reason, **target)
        stub, metadata = (self.edge, bearer(token)) if token else (self.operator, ())
        return (await stub.RevokeToken(request, metadata=metadata)).revocation  # type: ignore[no-any-return]

    async def delegate(self, token: str, agent: str = AGENT) -> Any:
        request = pb.DelegateTokenRequest(agent=agent, part=pb.Part())
        return await self.edge.DelegateToken(request, metadata=bearer(token))

    async def narrow(self, token: str) -> Any:
        request = pb.NarrowTokenRequest(part=pb.Part(tools=[ToolGrant(tool="core.echo")]))
        return await self.edge.NarrowToken(request, metadata=bearer(token))

    async def code(self, token: str) -> str:
        """Return the code that a call with the token would meet; empty for a good one."""
        return str((await self.mesh.introspect(token)).error_code)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def refusal(awaitable: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return from_rpc_error(caught.value)


@pytest.fixture
async def tokens(mesh: Any) -> Tokens:
    return Tokens(mesh)


async def test_a_revoked_token_is_refused_when_the_revocation_returns_with_all_that_was_derived_from_it(
    tokens: Tokens,
) -> None:
    root, other = await tokens.mesh.mint(), await tokens.mesh.mint()
    agent = await tokens.delegate(root.token)
    leaf = await tokens.narrow(agent.token)
    for token in (root.token, agent.token, leaf.token):
        assert await tokens.code(token) == ""
    await tokens.revoke(token_id=agent.claims.token_id)
    assert await tokens.code(root.token) == ""
    assert await tokens.code(agent.token) == await tokens.code(leaf.token) == "E3212"
    await tokens.revoke(token_id=root.claims.token_id)
    assert await tokens.code(root.token) == "E3212"
    assert await tokens.code(other.token) == ""
    error = await refusal(tokens.mesh.check(leaf.token))
    assert error.reason is Reason.TOKEN_REVOKED
    assert (await refusal(tokens.delegate(root.token))).reason is Reason.TOKEN_REVOKED


async def test_a_subjects_tokens_are_revoked_until_now_and_new_ones_hold(tokens: Tokens) -> None:
    alices, bobs = await tokens.mesh.mint(), await tokens.mesh.mint(subject=BOB)
    derived = await tokens.delegate(alices.token)
    revocation = await tokens.revoke(subject=ALICE)
    assert revocation.subject == ALICE
    assert await tokens.code(alices.token) == await tokens.code(derived.token) == "E3212"
    assert await tokens.code(bobs.token) == ""
    # Tokens say when they were made in whole seconds.
    tokens.mesh.clock.advance(1)
    assert await tokens.code((await tokens.mesh.mint()).token) == ""


async def test_all_tokens_of_an_agent_are_revoked(tokens: Tokens) -> None:
    alices, bobs = await tokens.mesh.mint(), await tokens.mesh.mint(subject=BOB)
    agents = [(await tokens.delegate(token.token)).token for token in (alices, bobs)]
    await tokens.revoke(subject=AGENT)
    assert [await tokens.code(token) for token in agents] == ["E3212", "E3212"]
    assert await tokens.code(alices.token) == ""


async def test_tokens_of_a_replica_whose_clock_is_ahead_are_revoked_too(tokens: Tokens) -> None:
    tokens.mesh.clock.advance(4)
    ahead = await tokens.mesh.mint()
    tokens.mesh.clock.advance(-4)
    await tokens.revoke(subject=ALICE)
    assert await tokens.code(ahead.token) == "E3212"


async def test_a_revoked_key_revokes_its_tokens_and_another_key_signs(tokens: Tokens, pems: tuple[bytes, ...]) -> None:
    old = await tokens.mesh.mint()
    derived = await tokens.delegate(old.token)
    kid = jwt.get_unverified_header(old.token)["kid"]
    revocation = await tokens.revoke(key_id=kid)
    assert revocation.key_id == kid
    assert not revocation.HasField("expire_time")
    assert await tokens.code(old.token) == await tokens.code(derived.token) == "E3212"
    assert (await refusal(tokens.mesh.mint())).reason is Reason.SERVICE_UNAVAILABLE
    (tokens.mesh.folder / SECOND).write_bytes(pems[1])
    tokens.mesh.clock.advance(1)
    new = await tokens.mesh.mint()
    assert jwt.get_unverified_header(new.token)["kid"] != kid
    assert await tokens.code(new.token) == ""


async def test_holders_may_revoke_only_their_token_and_its_descendants(tokens: Tokens) -> None:
    root, other = await tokens.mesh.mint(), await tokens.mesh.mint()
    agent = await tokens.delegate(root.token)
    leaf = await tokens.narrow(agent.token)
    for target in ({"token_id": root.claims.token_id}, {"token_id": other.claims.token_id}, {"subject": ALICE}):
        assert (await refusal(tokens.revoke(agent.token, **target))).reason is Reason.PERMISSION_DENIED
    kid = jwt.get_unverified_header(root.token)["kid"]
    assert (await refusal(tokens.revoke(root.token, key_id=kid))).reason is Reason.PERMISSION_DENIED
    await tokens.revoke(root.token, token_id=leaf.claims.token_id)
    assert await tokens.code(leaf.token) == "E3212"
    assert (await tokens.revoke(agent.token, token_id=agent.claims.token_id)).revoked_by == ALICE
    assert await tokens.code(agent.token) == "E3212"
    assert await tokens.code(root.token) == ""


async def test_an_administrator_revokes_anything(tokens: Tokens) -> None:
    other = await tokens.mesh.mint(subject=BOB)
    admin = (await tokens.mesh.mint(scopes=["authz:admin"])).token
    await tokens.revoke(admin, token_id=other.claims.token_id)
    assert await tokens.code(other.token) == "E3212"
    listed = await tokens.edge.ListRevocations(pb.ListRevocationsRequest(), metadata=bearer(admin))
    assert [one.token_id for one in listed.revocations] == [other.claims.token_id]
    plain = (await tokens.mesh.mint()).token
    listing = tokens.edge.ListRevocations(pb.ListRevocationsRequest(), metadata=bearer(plain))
    assert (await refusal(listing)).reason is Reason.SCOPE_MISSING


@pytest.mark.parametrize("target", [{"token_id": "nobody-knows"}, {"key_id": "nobody-knows"}])
async def test_revoking_an_unknown_token_or_key_is_not_found(tokens: Tokens, target: dict[str, str]) -> None:
    assert (await refusal(tokens.revoke(**target))).reason is Reason.NOT_FOUND


async def test_revoking_again_changes_nothing(tokens: Tokens) -> None:
    token = await tokens.mesh.mint()
    first = await tokens.revoke(token_id=token.claims.token_id)
    assert await tokens.revoke(token_id=token.claims.token_id, reason="again") == first


async def test_revocations_are_listed_newest_first_page_by_page_until_they_are_over(tokens: Tokens) -> None:
    minted = [await tokens.mesh.mint(lifetime={"seconds": 60 * (n + 1)}) for n in range(3)]
    for one in minted:
        await tokens.revoke(token_id=one.claims.token_id)
    first = await tokens.operator.ListRevocations(pb.ListRevocationsRequest(page_size=2))
    rest = await tokens.operator.ListRevocations(
        pb.ListRevocationsRequest(page_size=2, page_token=first.next_page_token)
    )
    found = [one.token_id for one in (*first.revocations, *rest.revocations)]
    assert found == [one.claims.token_id for one in reversed(minted)]
    assert rest.next_page_token == ""
    tokens.mesh.clock.advance(70)
    left = await tokens.operator.ListRevocations(pb.ListRevocationsRequest())
    assert [one.token_id for one in left.revocations] == found[:2]
    wrong = tokens.operator.ListRevocations(pb.ListRevocationsRequest(page_token="bm9uZQ"))
    assert (await refusal(wrong)).reason is Reason.PAGE_TOKEN_INVALID


async def next_matching(call: Any, matches: Callable[[Any], bool]) -> Any:
    """Return the first message of a watch that matches."""
    async with asyncio.timeout(10):
        while (message := await call.read()) is not grpc.aio.EOF:
            if matches(message):
                return message
    raise AssertionError("the watch ended")


async def test_a_watch_begins_with_all_that_matters_and_speaks_even_when_nothing_changes(tokens: Tokens) -> None:
    token = await tokens.mesh.mint()
    revoked = await tokens.revoke(token_id=token.claims.token_id)
    watch = tokens.executor.WatchInvalidations(pb.WatchInvalidationsRequest())
    first = await watch.read()
    assert first.snapshot
    assert [one.token_id for one in first.revocations] == [token.claims.token_id]
    assert first.revocations[0].expire_time == revoked.expire_time
    assert first.policy_set_version.startswith("sha256:")
    second = await watch.read()
    assert (second.snapshot, list(second.revocations)) == (False, [])
    await tokens.revoke(subject=ALICE)
    message = await next_matching(watch, lambda message: message.revocations)
    assert [one.subject for one in message.revocations] == [ALICE]
    watch.cancel()


async def test_a_large_invalidation_is_split_into_several_messages(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "MAX_REVOCATIONS", 2)
    revoked = [(await tokens.mesh.mint()).claims.token_id for _ in range(5)]
    for token_id in revoked:
        await tokens.revoke(token_id=token_id)
    watch = tokens.executor.WatchInvalidations(pb.WatchInvalidationsRequest())
    messages = [await watch.read() for _ in range(3)]
    assert [(message.snapshot, message.continued) for message in messages] == [
        (True, True),
        (False, True),
        (False, False),
    ]
    assert [one.token_id for message in messages for one in message.revocations] == revoked
    watch.cancel()
    view = RevocationView(SystemClock())
    follower = InvalidationFollower(tokens.mesh.channel("executor"), view, Log("test", level="error"))
    await follower.start()
    async with asyncio.timeout(10):
        while not view.believed():  # noqa: ASYNC110  (the view has no event)
            await asyncio.sleep(0.01)
    assert all(view.refuses(TokenLineage(frozenset({f"token:{token_id}"}))) for token_id in revoked)
    await follower.stop()


def test_the_largest_invalidation_message_fits_into_a_grpc_message() -> None:
    longest = Revocation(2**62, RevocationTarget("subject", "did:web:" + "a" * 504), "", "", NOW, NOW, "t" * 128)
    invalidation = Invalidation(2**62, "sha256:" + "0" * 64, (longest,) * (convert.MAX_REVOCATIONS * 2), snapshot=True)
    assert max(message.ByteSize() for message in convert.invalidation_messages(invalidation)) < MAX_MESSAGE_BYTES


@pytest.mark.parametrize("target", [{"token_id": "a\0b"}, {"key_id": "a\0b"}, {"subject": ALICE, "reason": "a\0b"}])
async def test_what_no_row_can_hold_is_the_askers_mistake(tokens: Tokens, target: dict[str, str]) -> None:
    assert (await refusal(tokens.revoke(**target))).reason is Reason.INVALID_REQUEST


async def test_only_services_watch(tokens: Tokens) -> None:
    for stub in (tokens.edge, tokens.operator):
        call = stub.WatchInvalidations(pb.WatchInvalidationsRequest())
        assert (await refusal(call.read())).reason is Reason.PEER_NOT_ALLOWED
