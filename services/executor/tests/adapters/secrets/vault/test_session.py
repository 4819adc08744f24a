"""Logins, renewals and reads of a session, against a strict stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.executor.adapters.secrets.vault.session import (
    VaultAddress,
    VaultDeniedError,
    VaultLogin,
    VaultSession,
)
from services.executor.tests.adapters.secrets.vault.stand_in import LOGIN_SECONDS, StandIn, running_stand_in

FIELDS = {VaultLogin.APPROLE: "role_id secret_id", VaultLogin.KUBERNETES: "role jwt", VaultLogin.JWT: "role jwt"}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with running_stand_in() as running:
        running.put("toolmesh/crm_key", {"value": "first"})
        yield running


def session_of(
    server: StandIn, folder: Path, login: VaultLogin = VaultLogin.APPROLE, *, mount: str = ""
) -> VaultSession:
    server.credentials[mount or login.value] = (FIELDS[login], "executor", "proof-1")
    credential = folder / "credential"
    credential.write_text("proof-1\n")
    address = VaultAddress(server.url, login, credential, role="executor", auth_mount=mount)
    return VaultSession(address, now=lambda: server.now)


def logins(server: StandIn) -> int:
    return sum(request.endswith("/login") for request in server.requests)


@pytest.mark.parametrize("login", FIELDS)
@pytest.mark.parametrize("mount", ["", "cluster-7"])
def test_each_login_opens_the_store(server: StandIn, tmp_path: Path, login: VaultLogin, mount: str) -> None:
    session = session_of(server, tmp_path, login, mount=mount)
    assert session.read("secret", "toolmesh/crm_key") == {"value": "first"}
    assert session.read("secret", "toolmesh/other") is None
    assert logins(server) == 1


def test_a_token_of_a_file_opens_the_store(server: StandIn, tmp_path: Path) -> None:
    server.tokens["hvs.fixed"] = (0.0, 1000.0)
    (tmp_path / "token").write_text("hvs.fixed")
    address = VaultAddress(server.url, VaultLogin.TOKEN, tmp_path / "token")
    assert VaultSession(address, now=lambda: server.now).read("secret", "toolmesh/crm_key") == {"value": "first"}


def test_the_next_read_sees_a_new_version_and_a_deleted_one_is_gone(server: StandIn, tmp_path: Path) -> None:
    session = session_of(server, tmp_path)
    session.read("secret", "toolmesh/crm_key")
    server.put("toolmesh/crm_key", {"value": "second"})
    assert session.read("secret", "toolmesh/crm_key") == {"value": "second"}
    server.put("toolmesh/crm_key", None)
    assert session.read("secret", "toolmesh/crm_key") is None


def test_a_token_is_renewed_before_its_end_and_replaced_at_its_longest_time(server: StandIn, tmp_path: Path) -> None:
    session = session_of(server, tmp_path)
    for server.now in (0.0, 30.0, 45.0):
        session.read("secret", "toolmesh/crm_key")
    renewals = [request for request in server.requests if request.endswith("renew-self")]
    assert (logins(server), len(renewals)) == (1, 1)
    # The renewed token ends at 100, whatever is asked for.
    for server.now in (90.0, 99.0):
        session.read("secret", "toolmesh/crm_key")
    assert logins(server) == 2


def test_an_ended_and_a_revoked_token_are_replaced(server: StandIn, tmp_path: Path) -> None:
    session = session_of(server, tmp_path)
    session.read("secret", "toolmesh/crm_key")
    server.now = LOGIN_SECONDS + 1.0
    assert session.read("secret", "toolmesh/crm_key") == {"value": "first"}
    server.revoke_all()
    assert session.read("secret", "toolmesh/crm_key") == {"value": "first"}
    assert logins(server) == 3


def test_a_replaced_credential_is_used_by_the_next_login(server: StandIn, tmp_path: Path) -> None:
    session = session_of(server, tmp_path)
    server.credentials["approle"] = (FIELDS[VaultLogin.APPROLE], "executor", "proof-2")
    with pytest.raises(VaultDeniedError):
        session.read("secret", "toolmesh/crm_key")
    (tmp_path / "credential").write_text("proof-2")
    assert session.read("secret", "toolmesh/crm_key") == {"value": "first"}


def test_a_redirect_is_not_followed(server: StandIn, tmp_path: Path) -> None:
    session = session_of(server, tmp_path)
    with running_stand_in() as elsewhere:
        server.redirect_to = f"{elsewhere.url}/v1/auth/approle/login"
        with pytest.raises(OSError):
            session.read("secret", "toolmesh/crm_key")
        assert elsewhere.requests == []


def test_a_server_that_is_away_and_a_lost_credential_are_os_errors(server: StandIn, tmp_path: Path) -> None:
    session = session_of(server, tmp_path)
    (tmp_path / "credential").unlink()
    with pytest.raises(OSError):
        session.read("secret", "toolmesh/crm_key")
    away = VaultAddress("http://127.0.0.1:1", VaultLogin.TOKEN, tmp_path / "token")
    (tmp_path / "token").write_text("hvs.fixed")
    with pytest.raises(OSError) as caught:
        VaultSession(away).read("secret", "toolmesh/crm_key")
    assert "hvs.fixed" not in str(caught.value)
