"""The administrator's URL on this machine: its authority is in a file, and a tunnel takes the place of the server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from localmesh.deploy.admin_url import AdminUrlError, open_admin_url
from localmesh.deploy.init_secrets import ADMIN
from localmesh.deploy.layout import STORES_CA, Namespaces
from localmesh.tests.deploy.memory_secrets import MemorySecrets

NAMESPACES = Namespaces()
URL = "postgresql://admin:a%40b@db.internal:5432/postgres"


def secrets_with(url: str, **content: bytes) -> MemorySecrets:
    store = MemorySecrets()
    store.create("toolmesh", ADMIN, {"url": f"{url}\n".encode(), **content})
    return store


def test_the_authority_is_in_a_file_for_as_long_as_the_block_runs() -> None:
    store = secrets_with(f"{URL}?sslmode=verify-full&application_name=a", **{STORES_CA: b"authority"})
    with open_admin_url(store, NAMESPACES) as url:
        query = dict(parse_qsl(urlsplit(url).query))
        file = Path(query.pop("sslrootcert"))
        assert file.read_bytes() == b"authority"
        assert query == {"sslmode": "verify-full", "application_name": "a"}
        assert urlsplit(url).netloc == urlsplit(URL).netloc
    assert not file.exists()


@pytest.mark.parametrize(
    ("server", "place"),
    [("127.0.0.1", "db.internal:5432 127.0.0.1"), ("[::1]:15432", "db.internal:15432 ::1")],
)
def test_a_tunnel_may_have_the_servers_port_or_an_address_of_ipv6(server: str, place: str) -> None:
    with open_admin_url(secrets_with(f"{URL}?sslmode=verify-full"), NAMESPACES, server) as url:
        parts = urlsplit(url)
        assert f"{parts.hostname}:{parts.port} {dict(parse_qsl(parts.query))['hostaddr']}" == place


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "postgresql://admin:a%40b@127.0.0.1:15432/postgres"),
        ("?sslmode=require", "postgresql://admin:a%40b@127.0.0.1:15432/postgres?sslmode=require"),
        (
            "?sslmode=verify-full",
            "postgresql://admin:a%40b@db.internal:15432/postgres?sslmode=verify-full&hostaddr=127.0.0.1",
        ),
    ],
)
def test_only_a_server_whose_name_is_checked_keeps_it_behind_a_tunnel(query: str, expected: str) -> None:
    with open_admin_url(secrets_with(URL + query), NAMESPACES, "127.0.0.1:15432") as url:
        assert url == expected


@pytest.mark.parametrize("server", ["no.invalid:1", "127.0.0.1:port"])
def test_a_tunnel_without_an_address_is_refused_without_a_password(server: str) -> None:
    store = secrets_with(f"{URL}?sslmode=verify-full")
    with pytest.raises(AdminUrlError) as refused, open_admin_url(store, NAMESPACES, server):
        pass
    assert "a%40b" not in str(refused.value)


def test_a_missing_secret_is_refused() -> None:
    with pytest.raises(AdminUrlError), open_admin_url(MemorySecrets(), NAMESPACES):
        pass
