"""The ledger with a real database and without one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import grpc.aio
import psycopg
import pytest
from psycopg.rows import DictRow, dict_row
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant

from libs.common.errors import Reason
from libs.common.rpc.status import from_rpc_error
from services.authz.tests.conftest import ALICE


def ledger_of(mesh: Any) -> list[DictRow]:
    with psycopg.connect(mesh.database_url, row_factory=dict_row) as connection:
        return connection.execute("select * from authz.issued_tokens order by jti").fetchall()


def close_database(superuser: str, url: str) -> None:
    """Refuse new connections and end all existing ones."""
    name = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(superuser + "/postgres", autocommit=True) as connection:
        connection.execute(f"alter database {name} with allow_connections false")
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))


async def test_every_minted_token_has_its_entry(mesh: Any) -> None:
    minted = [await mesh.mint(scopes=["a", "b"], tools=[ToolGrant(tool="echo", version_constraint="^1")])]
    minted.append(await mesh.mint(scopes=["c"], tools=[]))
    rows = ledger_of(mesh)
    assert {row["jti"] for row in rows} == {one.claims.token_id for one in minted}
    row = next(row for row in rows if row["jti"] == minted[0].claims.token_id)
    assert (row["subject"], row["tier"]) == (ALICE, "user")
    assert (row["scopes"], row["tools"]) == (["a", "b"], [{"tool": "echo", "version": "^1"}])
    assert row["issued_at"] == datetime.fromtimestamp(minted[0].claims.issue_time.seconds, UTC)
    assert row["expires_at"] == datetime.fromtimestamp(minted[0].claims.expire_time.seconds, UTC)


async def test_no_part_of_a_token_is_kept(mesh: Any) -> None:
    token = (await mesh.mint()).token
    kept = str(ledger_of(mesh))
    assert not any(part in kept for part in token.split("."))


async def test_a_refused_request_leaves_no_entry(mesh: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await mesh.mint(tools=[], scopes=[])
    assert ledger_of(mesh) == []


async def test_without_its_database_authz_still_decides_but_mints_nothing(mesh: Any, postgres_server: str) -> None:
    token = (await mesh.mint()).token
    close_database(postgres_server, mesh.database_url)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await mesh.mint()
    assert from_rpc_error(caught.value).reason is Reason.SERVICE_UNAVAILABLE
    assert (await mesh.check(token)).HasField("allow")
    assert (await mesh.introspect(token)).active
