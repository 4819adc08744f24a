"""The secrets of a backup: keys alone, and none is replaced by a restore."""

from __future__ import annotations

import pytest

from localmesh.cluster_backup.errors import TargetError
from localmesh.cluster_backup.kept_secrets import (
    TOOL_SECRETS,
    create_secrets,
    new_signing_keys,
    parse_contents,
    plan_secrets,
    read_kept,
    replace_signing_keys,
    write_contents,
)
from localmesh.deploy.init_secrets import CHECKPOINT_KEY, CONSOLE_KEYS, SEALING_KEYS, SIGNING_KEYS, init_keys
from localmesh.deploy.layout import Namespaces
from localmesh.tests.deploy.memory_secrets import MemorySecrets

NAMESPACES = Namespaces()
KEYS = {SIGNING_KEYS, CHECKPOINT_KEY, CONSOLE_KEYS, SEALING_KEYS}


@pytest.fixture
def store() -> MemorySecrets:
    store = MemorySecrets()
    init_keys(store, NAMESPACES)
    store.create("toolmesh-executor", TOOL_SECRETS, {"weather": b"\x00\xff"})
    store.create("toolmesh", "authz-database", {"url": b"postgresql://"})
    return store


def test_all_keys_are_read_and_no_password(store: MemorySecrets) -> None:
    kept = read_kept(store, NAMESPACES)
    assert kept.keys() == {*KEYS, TOOL_SECRETS}
    assert parse_contents([write_contents(kept)]) == kept


@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_mesh_without_a_key_is_not_backed_up(store: MemorySecrets, name: str) -> None:
    del store.content["toolmesh", name]
    with pytest.raises(TargetError):
        read_kept(store, NAMESPACES)


def test_a_cluster_gets_what_it_lacks_in_both_namespaces(store: MemorySecrets) -> None:
    kept, other = read_kept(store, NAMESPACES), MemorySecrets()
    missing = plan_secrets(other, NAMESPACES, kept)
    create_secrets(other, NAMESPACES, missing)
    replace_signing_keys(other, NAMESPACES, kept[SIGNING_KEYS])
    del store.content["toolmesh", "authz-database"]
    assert other.content == store.content
    assert plan_secrets(other, NAMESPACES, kept) == {}


def test_keys_that_came_after_the_backup_stay(store: MemorySecrets) -> None:
    kept = read_kept(store, NAMESPACES)
    store.content["toolmesh", SEALING_KEYS]["later.key"] = b"later"
    assert plan_secrets(store, NAMESPACES, kept) == {}


def test_keys_of_another_mesh_are_never_replaced(store: MemorySecrets) -> None:
    other = MemorySecrets()
    other.create("toolmesh", CHECKPOINT_KEY, {"checkpoint.pem": b"another"})
    with pytest.raises(TargetError):
        plan_secrets(other, NAMESPACES, read_kept(store, NAMESPACES))


def test_a_new_signing_key_is_no_earlier_one() -> None:
    assert set(new_signing_keys().values()).isdisjoint(new_signing_keys().values())
