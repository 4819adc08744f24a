"""Credentials in Vault as a call gets them: bindings, tenants, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.secret_store.secret import Binding
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.executor.adapters.secrets.folder_secrets import FolderSecrets
from services.executor.adapters.secrets.vault.session import VaultAddress, VaultLogin, VaultSession
from services.executor.adapters.secrets.vault.vault_folder import VaultFolder
from services.executor.tests.adapters.secrets.vault.stand_in import StandIn, running_stand_in

BOUND = {"hosts": ["api.example.com"], "namespaces": ["acme"]}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with running_stand_in() as running:
        running.tokens["hvs.fixed"] = (0.0, 1e9)
        yield running


@pytest.fixture
def folder(server: StandIn, tmp_path: Path) -> VaultFolder:
    (tmp_path / "token").write_text("hvs.fixed")
    session = VaultSession(VaultAddress(server.url, VaultLogin.TOKEN, tmp_path / "token"))
    return VaultFolder(session, "secret/toolmesh", Log("test"), now=lambda: server.now)


async def reason_of(folder: VaultFolder, name: str = "crm_key") -> Reason:
    with pytest.raises(MeshError) as caught:
        await FolderSecrets([folder], ManualClock()).get(name, "acme")
    return caught.value.reason


async def test_a_tenants_own_secret_comes_before_the_shared_one(server: StandIn, folder: VaultFolder) -> None:
    secrets = FolderSecrets([folder], ManualClock())
    server.put("toolmesh/crm_key", {"value": "shared", **BOUND})
    found = await secrets.get("crm_key", "acme")
    assert (found.value, found.binding) == ("shared", Binding(("api.example.com",), ("acme",)))
    server.put("toolmesh/tenants/acme/crm_key", {"value": "own", **BOUND})
    assert (await secrets.get("crm_key", "acme")).value == "own"
    assert (await secrets.get("crm_key", "other")).value == "shared"


@pytest.mark.parametrize("tenant", ["../other", "a/b", "x%2Fy", "=61", ".", "ä", "a?b#c"])
async def test_a_tenants_name_is_one_segment_and_never_another_tenants(
    server: StandIn, folder: VaultFolder, tenant: str
) -> None:
    for owner in ("other", "a", "b", "x", "y", ""):
        server.put(f"toolmesh/tenants/{owner}/crm_key", {"value": "of another", **BOUND})
    assert folder.find("crm_key", tenant) is None
    [asked] = [request for request in server.requests if "/data/" in request]
    assert asked.count("/") == "GET /v1/secret/data/toolmesh/tenants/one/crm_key".count("/")
    assert f"/={tenant.encode().hex()}/" in unquote(asked)


async def test_each_failure_has_its_own_reason(server: StandIn, folder: VaultFolder) -> None:
    assert await reason_of(folder) is Reason.CREDENTIAL_NOT_FOUND
    for spoiled in ({"value": "no binding"}, {**BOUND}, {"value": 7, **BOUND}, {"value": "x", **BOUND, "more": 1}):
        server.put("toolmesh/crm_key", spoiled)
        assert await reason_of(folder) is Reason.CREDENTIAL_UNREADABLE
    server.put("toolmesh/crm_key", {"value": "x", **BOUND, "expires": "2001-01-01T00:00:00Z"})
    assert await reason_of(folder) is Reason.CREDENTIAL_EXPIRED
    server.revoke_all()
    assert await reason_of(folder) is Reason.SECRET_STORE_UNAVAILABLE


async def test_a_server_that_did_not_answer_is_left_alone_for_a_moment(server: StandIn, folder: VaultFolder) -> None:
    server.put("toolmesh/crm_key", {"value": "x", **BOUND})
    server.redirect_to = "http://elsewhere.example"
    assert await reason_of(folder) is Reason.SECRET_STORE_UNAVAILABLE
    server.redirect_to = ""
    asked = len(server.requests)
    assert await reason_of(folder) is Reason.SECRET_STORE_UNAVAILABLE
    assert len(server.requests) == asked
    server.now += 1.5
    assert (await FolderSecrets([folder], ManualClock()).get("crm_key", "acme")).value == "x"
