"""Keys and passwords of a cluster: made once, each role and user with its own."""

from __future__ import annotations

import hashlib
from urllib.parse import parse_qsl, urlsplit

from localmesh.deploy.init_secrets import SEALING_KEYS, VALKEY, init_database_urls, init_keys, init_redis_urls
from localmesh.deploy.layout import OWNERS, STORES_CA, Namespaces, database_secret, owner_secret, redis_secret
from localmesh.state.secrets import VALKEY_USERS
from localmesh.tests.deploy.memory_secrets import MemorySecrets

NAMESPACES = Namespaces()


def fill(store: MemorySecrets) -> None:
    init_keys(store, NAMESPACES)
    init_database_urls(store, NAMESPACES, "postgres.toolmesh:5432")
    init_redis_urls(store, NAMESPACES, "valkey.toolmesh:6379")


def test_secrets_that_exist_stay_as_they_are() -> None:
    store = MemorySecrets()
    fill(store)
    before = {name: dict(content) for name, content in store.content.items()}
    fill(store)
    assert store.content == before


def test_authz_and_the_executor_seal_with_the_same_keys() -> None:
    store = MemorySecrets()
    fill(store)
    assert store.content["toolmesh", SEALING_KEYS] == store.content["toolmesh-executor", SEALING_KEYS]


def test_urls_that_exist_get_tls_and_a_new_authority_and_keep_their_passwords() -> None:
    plain = MemorySecrets()
    fill(plain)
    for authority in (b"first", b"second"):
        init_database_urls(plain, NAMESPACES, "another:1", authority)
        init_redis_urls(plain, NAMESPACES, "another:1", authority)
    kept = {place: dict(content) for place, content in plain.content.items()}
    fill(plain)
    assert plain.content == kept
    for content in kept.values():
        if "url" in content:
            assert content[STORES_CA] == b"second"
            url = urlsplit(content["url"].decode())
            assert url.hostname in {"postgres.toolmesh", "valkey.toolmesh"}
            assert url.password
            assert url.scheme == "rediss" or dict(parse_qsl(url.query))["sslmode"] == "verify-full"
    # Valkey admits the same passwords as before.
    configuration = kept["toolmesh", VALKEY]["valkey.conf"].decode()
    for user in VALKEY_USERS:
        word = urlsplit(kept[NAMESPACES.of(user), redis_secret(user)]["url"].decode()).password or ""
        assert hashlib.sha256(word.encode()).hexdigest() in configuration


def test_every_role_has_a_url_and_a_password_of_its_own() -> None:
    store = MemorySecrets()
    fill(store)
    urls = {}
    for service, owner in OWNERS.items():
        namespace = NAMESPACES.of(service)
        urls[service] = store.content[namespace, database_secret(service)]["url"].decode()
        urls[owner] = store.content[namespace, owner_secret(service)]["url"].decode()
    assert {urlsplit(url).username for url in urls.values()} == urls.keys()
    assert len({urlsplit(url).password for url in urls.values()}) == len(urls)
    assert {urlsplit(url).hostname for url in urls.values()} == {"postgres.toolmesh"}


def test_valkey_admits_each_user_by_the_hash_of_its_password_alone() -> None:
    store = MemorySecrets()
    fill(store)
    configuration = store.content["toolmesh", VALKEY]["valkey.conf"].decode()
    for user in VALKEY_USERS:
        password = urlsplit(store.content[NAMESPACES.of(user), redis_secret(user)]["url"].decode()).password
        assert f"user {user} on #" in configuration
        assert str(password) not in configuration
