"""Fixtures of the executor's tests: peers over real mutual TLS and a migrated database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import new_key
from libs.common.settings import Address
from libs.common.sql.engine import engine_for
from libs.common.sql.migrate import migrate
from libs.common.telemetry.log import Log
from services.executor.tests.peers import AuditPeer, AuthzPeer, RegistryPeer, reaching, serving

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"


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
    peer = AuditPeer()
    peer.address = await stack.enter_async_context(serving(pki, "audit", peer.add))
    return peer


@pytest.fixture
async def authz(pki: Any, signer: Any, stack: AsyncExitStack) -> AuthzPeer:
    peer = AuthzPeer(signer)
    peer.address = await stack.enter_async_context(serving(pki, "authz", peer.add))
    return peer


@pytest.fixture
async def registry(pki: Any, stack: AsyncExitStack) -> RegistryPeer:
    peer = RegistryPeer()
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
    await migrate(made[0], MIGRATIONS, schema="executor")
    yield made
    for engine in made:
        await engine.dispose()
