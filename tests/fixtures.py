"""Fixtures for every test in the tree: real certificates, real tokens, a real PostgreSQL and a real Valkey."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import orjson
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from libs.common.ids import new_id
from localmesh.state.certificates import Pki, issue_certificates

ISSUER = "https://authz.toolmesh.local"
AUDIENCE = "toolmesh"
# Where a service's own role must not own its schema.
SCHEMA_OWNERS = {"audit": "audit_owner"}


@dataclass
class Signer:
    """An issuer of capability tokens whose public keys a verifier can fetch."""

    kid: str = "test-key"
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    async def fetch_jwks(self) -> bytes:
        """Answer like the issuer's GetJwks."""
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return orjson.dumps({"keys": [{**public, "kid": self.kid, "alg": "RS256", "use": "sig"}]})

    def mint(self, subject: str = "did:web:toolmesh.local:users:alice", **changes: Any) -> str:
        """Sign a token that is good unless `changes` spoil it."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "jti": new_id(),
            "iat": now,
            "exp": now + 600,
            "tier": "user",
            "scope": "tools:call tools:read",
            "tools": [{"tool": "*"}],
            **changes,
        }
        return jwt.encode(claims, self.key, "RS256", {"kid": self.kid})


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """A certificate authority and a certificate for every name of the mesh."""
    folder = tmp_path_factory.mktemp("pki")
    return issue_certificates(folder)


@pytest.fixture(scope="session")
def other_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Another authority, and its certificates for every name of the mesh."""
    return issue_certificates(tmp_path_factory.mktemp("other-pki"))


@pytest.fixture(scope="session")
def signer() -> Signer:
    """An issuer of tokens."""
    return Signer()


@pytest.fixture
def process_environment(pki: Pki) -> Callable[[str], dict[str, str]]:
    """Return the environment that every process needs, for the service of the given name, on ports of the kernel's
    choice."""

    def environment(name: str) -> dict[str, str]:
        identity = pki.of(name)
        return {
            "TOOLMESH_LISTEN": "127.0.0.1:0",
            "TOOLMESH_OPS_LISTEN": "127.0.0.1:0",
            "TOOLMESH_TLS_CERT": str(identity.cert),
            "TOOLMESH_TLS_KEY": str(identity.key),
            "TOOLMESH_TLS_CA": str(pki.ca),
            "TOOLMESH_DRAIN_SECONDS": "2",
            "TOOLMESH_DRAIN_DELAY_SECONDS": "0",
        }

    return environment


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running PostgreSQL; the URL of its superuser, without a database."""
    from tests.harness.stores import run_postgres

    with run_postgres(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@pytest.fixture(scope="session")
def migrated(postgres_server: str) -> Callable[[str], str]:
    """Return a factory of templates: a database in which a service's migrations have run, made once for all tests."""
    made: dict[str, str] = {}

    def template(service: str) -> str:
        if service not in made:
            made[service] = f"template_{service}"
            _create(postgres_server, made[service], service)
            url = _url(postgres_server, _owner(service), made[service])
            command = [sys.executable, "-m", f"services.{service}.migrations"]
            environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
            subprocess.run(command, check=True, env={**environment, "TOOLMESH_MIGRATION_DATABASE_URL": url})
        return made[service]

    return template


@pytest.fixture
def database(postgres_server: str, migrated: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Return a factory: `database("audit")` makes a fresh database with the role, schema and tables of that service;
    with `empty=True` without the tables."""
    with _databases(postgres_server, migrated) as create:
        yield create


@pytest.fixture(scope="module")
def shared_database(postgres_server: str, migrated: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """The same for tests of one file that leave a database as they found it."""
    with _databases(postgres_server, migrated) as create:
        yield create


@contextmanager
def _databases(postgres_server: str, migrated: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    made: list[str] = []

    def create(service: str, *, empty: bool = False) -> str:
        made.append("t" + new_id().replace("-", ""))
        _create(postgres_server, made[-1], service, template="" if empty else migrated(service))
        return _url(postgres_server, service, made[-1])

    yield create
    with psycopg.connect(postgres_server + "/postgres", autocommit=True) as connection:
        for name in made:
            connection.execute(f"drop database {name} with (force)")


def _create(server: str, name: str, service: str, template: str = "") -> None:
    with psycopg.connect(server + "/postgres", autocommit=True) as connection:
        connection.execute(f"create database {name}" + (f" template {template} strategy file_copy" if template else ""))
        for role in {service, _owner(service)}:
            if not connection.execute("select 1 from pg_roles where rolname = %s", (role,)).fetchone():
                connection.execute(f"create role {role} login password 'test'")
    if not template:
        with psycopg.connect(f"{server}/{name}", autocommit=True) as connection:
            connection.execute(f"create schema {service} authorization {_owner(service)}")


def _owner(service: str) -> str:
    return SCHEMA_OWNERS.get(service, service)


def _url(server: str, role: str, name: str) -> str:
    return f"postgresql://{role}:test@{server.rsplit('@', 1)[1]}/{name}"


def owners_url(url: str) -> str:
    """Return the address under which the owner of a service's schema reaches the database of `database(service)`."""
    role = url.removeprefix("postgresql://").partition(":")[0]
    return url.replace(f"//{role}:", f"//{_owner(role)}:", 1)


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running Valkey."""
    from tests.harness.stores import run_valkey

    with run_valkey(tmp_path_factory.mktemp("valkey")) as url:
        yield url


@pytest.fixture
def repository() -> Path:
    """The root of the tree."""
    return Path(__file__).resolve().parent.parent
