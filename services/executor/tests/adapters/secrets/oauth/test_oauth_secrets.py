"""Tokens as a call gets them: kept until they end, by client, tenant and caller."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.secret_store.secret import Binding, GrantType, OAuthClient, Secret
from libs.common.telemetry.log import Log
from services.executor.adapters.secrets.oauth.access_token import (
    AccessToken,
    TokenRefusedError,
    TokenUnavailableError,
)
from services.executor.adapters.secrets.oauth.oauth_secrets import OAuthSecrets

HOSTS, NAMESPACES = ("api.example.com",), ("acme",)
CLIENT = OAuthClient("https://login.example.com/token", "mesh")
EXCHANGED = OAuthClient("https://login.example.com/token", "mesh", GrantType.TOKEN_EXCHANGE)


@dataclass
class Scene:
    """The store, the authorization server and the caller, as a test sets them."""

    secrets: dict[tuple[str, str], Secret] = field(default_factory=dict)
    caller: str = "token-of-alice"
    now: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    failure: Exception | None = None

    async def get(self, name: str, tenant: str) -> Secret:
        return self.secrets.get((name, tenant)) or self.secrets[name, ""]

    async def reject(self, name: str, tenant: str) -> None:
        raise AssertionError("only tokens are rejected")

    def caller_id(self) -> str:
        return self.caller

    async def issue(self, audience: str) -> str:
        return f"{self.caller} to {audience}"

    async def request(self, client: OAuthClient, secret: str, assertion: str) -> AccessToken:
        self.asked.append((secret, assertion))
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return AccessToken(f"granted-{len(self.asked)}", 100.0)

    def put(self, value: str, client: OAuthClient | None = CLIENT, tenant: str = "") -> None:
        binding = Binding(HOSTS, NAMESPACES, oauth=client)
        self.secrets["crm", tenant] = Secret("crm", value, binding, tenant)


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.put("first")
    return made


@pytest.fixture
def store(scene: Scene) -> OAuthSecrets:
    return OAuthSecrets(scene, scene.request, scene, Log("test"), now=lambda: scene.now)


async def value_of(store: OAuthSecrets, tenant: str = "acme") -> str:
    return (await store.get("crm", tenant)).value


async def reason_of(store: OAuthSecrets) -> Reason:
    with pytest.raises(MeshError) as caught:
        await store.get("crm", "acme")
    return caught.value.reason


async def test_a_secret_without_a_client_stays_what_it_is(scene: Scene, store: OAuthSecrets) -> None:
    scene.put("plain", None)
    assert await value_of(store) == "plain"
    assert scene.asked == []


async def test_a_token_is_kept_until_shortly_before_its_end(scene: Scene, store: OAuthSecrets) -> None:
    values = []
    for scene.now in (0.0, 79.0, 80.0):
        values.append(await value_of(store))
    assert values == ["granted-1", "granted-1", "granted-2"]
    found = await store.get("crm", "acme")
    assert found.binding == Binding(HOSTS, NAMESPACES)


async def test_calls_at_once_ask_once(scene: Scene, store: OAuthSecrets) -> None:
    assert set(await asyncio.gather(*(value_of(store) for _ in range(20)))) == {"granted-1"}
    assert len(scene.asked) == 1


async def test_a_rotated_secret_has_a_new_token_at_once(scene: Scene, store: OAuthSecrets) -> None:
    await value_of(store)
    scene.put("second")
    assert await value_of(store) == "granted-2"
    assert scene.asked[-1] == ("second", "")


async def test_no_tenant_gets_the_token_of_another(scene: Scene, store: OAuthSecrets) -> None:
    scene.put("first", tenant="acme")
    assert await value_of(store, "acme") != await value_of(store, "other")
    assert len(scene.asked) == 2


async def test_each_caller_has_a_token_of_its_own(scene: Scene, store: OAuthSecrets) -> None:
    scene.put("first", EXCHANGED)
    tokens = set()
    for scene.caller in ("token-of-alice", "token-of-bob", "token-of-alice"):
        tokens.add(await value_of(store))
    assert len(tokens) == 2
    assert [assertion for _, assertion in scene.asked] == [
        f"token-of-{name} to https://login.example.com/token" for name in ("alice", "bob")
    ]


async def test_work_without_a_caller_gets_no_token_of_one(scene: Scene, store: OAuthSecrets) -> None:
    scene.put("first", EXCHANGED)
    scene.caller = ""
    assert await reason_of(store) is Reason.CREDENTIAL_NOT_FOUND
    assert scene.asked == []


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (TokenRefusedError("invalid_client"), Reason.CREDENTIAL_EXPIRED),
        (TokenUnavailableError("http_500"), Reason.SECRET_STORE_UNAVAILABLE),
    ],
)
async def test_a_failing_server_is_left_alone_for_a_moment(
    scene: Scene, store: OAuthSecrets, failure: Exception, reason: Reason
) -> None:
    scene.failure = failure
    assert [await reason_of(store) for _ in range(3)] == [reason] * 3
    assert len(scene.asked) == 1
    scene.failure, scene.now = None, 1.0
    assert await value_of(store) == "granted-2"


async def test_a_token_that_a_service_refused_is_replaced_once_a_second(scene: Scene, store: OAuthSecrets) -> None:
    await value_of(store)
    for _ in range(5):
        await store.reject("crm", "acme")
        assert await value_of(store) == "granted-1"
    scene.now = 1.0
    assert await value_of(store) == "granted-2"
