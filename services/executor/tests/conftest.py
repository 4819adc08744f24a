"""Fixtures of the executor's tests: peers over real mutual TLS and a migrated database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.runtime.settings import Address, load
from libs.common.sealing import Seal, new_key
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.config import Settings
from services.executor.tests.keys import KEY, encode_record
from services.executor.tests.peers import ApprovalPeer, AuditPeer, AuthzPeer, RegistryPeer, reaching, serving


@pytest.fixture(scope="session")
def sealing_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one key that endings are sealed with."""
    folder = tmp_path_factory.mktemp("sealing-keys")
    (folder / "1.key").write_bytes(new_key())
    return folder


@pytest.fixture
def quiet() -> Log:
    """A log that only speaks of errors."""
    return Log("executor", level="error")


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What a test opens, closed in reverse."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def audit(pki: Any, stack: AsyncExitStack) -> AuditPeer:
    peer = AuditPeer()  # type: ignore[abstract]
    peer.address = await stack.enter_async_context(serving(pki, "audit", peer.add))
    return peer


@pytest.fixture
async def authz(pki: Any, signer: Any, stack: AsyncExitStack) -> AuthzPeer:
    peer = AuthzPeer(signer)  # type: ignore[abstract]
    peer.address = await stack.enter_async_context(serving(pki, "authz", peer.add))
    return peer


@pytest.fixture
async def approval(pki: Any, stack: AsyncExitStack) -> ApprovalPeer:
    peer = ApprovalPeer()  # type: ignore[abstract]
    peer.address = await stack.enter_async_context(serving(pki, "approval", peer.add))
    return peer


@pytest.fixture
async def registry(pki: Any, stack: AsyncExitStack) -> RegistryPeer:
    peer = RegistryPeer()  # type: ignore[abstract]
    peer.address = await stack.enter_async_context(serving(pki, "registry", peer.add))
    return peer


@pytest.fixture
def reach(pki: Any, stack: AsyncExitStack) -> Callable[[str, Address], Any]:
    """Return a factory of the executor's channels: `await reach("audit", address)`."""

    async def open_channel(name: str, address: Address) -> Any:
        return await stack.enter_async_context(reaching(pki, name, address))

    return open_channel


@pytest.fixture
async def engines(database: Callable[[str], str]) -> AsyncIterator[tuple[AsyncEngine, AsyncEngine]]:
    """The pools of two processes on one database with the executor's tables."""
    url = database("executor")
    made = (engine_for(url, schema="executor"), engine_for(url, schema="executor"))
    yield made
    for engine in made:
        await engine.dispose()


@pytest.fixture
def executor_settings(
    database: Callable[[str], str],
    process_environment: Callable[[str], dict[str, str]],
    sealing_keys: Path,
    valkey_url: str,
    audit: AuditPeer,
    authz: AuthzPeer,
    registry: RegistryPeer,
) -> Callable[..., Settings]:
    """Return what makes the settings of a whole executor among these peers; all of them share one database."""
    url = database("executor")

    def make(**more: str) -> Settings:
        environment = {
            **process_environment("executor"),
            "TOOLMESH_DATABASE_URL": url,
            "TOOLMESH_REDIS_URL": valkey_url,
            "TOOLMESH_SEALING_KEYS": str(sealing_keys),
            "TOOLMESH_APPROVAL_ADDRESS": "127.0.0.1:9",
            "TOOLMESH_REGISTRY_ADDRESS": str(registry.address),
            "TOOLMESH_AUTHZ_ADDRESS": str(authz.address),
            "TOOLMESH_AUDIT_ADDRESS": str(audit.address),
        }
        return load(Settings, environment | {f"TOOLMESH_{name}": value for name, value in more.items()})

    return make


@pytest.fixture
async def here(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncIterator[PostgresClaims]:
    """The keys as one process sees them."""
    made = PostgresClaims(engines[0], "executor-0", Seal([KEY]), encode_record)
    yield made
    await made.stop()


@pytest.fixture
async def there(engines: tuple[AsyncEngine, AsyncEngine]) -> AsyncIterator[PostgresClaims]:
    """The same keys as another process sees them."""
    made = PostgresClaims(engines[1], "executor-1", Seal([KEY]), encode_record)
    yield made
    await made.stop()
