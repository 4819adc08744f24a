from __future__ import annotations

import base64
import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from localmesh.state.keys import ensure_secrets
from localmesh.state.secrets import LOGINS, VALKEY_USERS, read_secrets
from localmesh.state.state import State


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_secrets_are_made_once_and_stay(state: State) -> None:
    ensure_secrets(state)
    made = everything(state.secrets)
    ensure_secrets(state)
    assert everything(state.secrets) == made


def test_a_lost_secret_is_made_anew_without_touching_the_others(state: State) -> None:
    ensure_secrets(state)
    before = read_secrets(state)
    (state.secrets / "valkey").unlink()
    ensure_secrets(state)
    after = read_secrets(state)
    assert after.valkey != before.valkey
    assert after.database == before.database


def test_every_role_has_a_password_of_its_own(state: State) -> None:
    ensure_secrets(state)
    passwords = read_secrets(state).database
    assert passwords.keys() == set(LOGINS)
    assert len(set(passwords.values())) == len(passwords)


def test_every_user_of_valkey_has_a_password_of_its_own(state: State) -> None:
    ensure_secrets(state)
    secrets = read_secrets(state)
    assert secrets.valkey_users.keys() == set(VALKEY_USERS)
    assert len({secrets.valkey, *secrets.valkey_users.values()}) == len(VALKEY_USERS) + 1


def test_the_keys_are_of_the_promised_kinds(state: State) -> None:
    ensure_secrets(state)
    secrets = read_secrets(state)
    (signing,) = secrets.signing_keys.glob("*.pem")
    key = load_pem_private_key(signing.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    assert key.key_size == 3072
    for folder in (secrets.sealing_keys, secrets.console_keys):
        (sealing,) = folder.glob("*.key")
        assert len(base64.b64decode(sealing.read_bytes(), validate=True)) == 32
    assert isinstance(load_pem_private_key(secrets.checkpoint_key.read_bytes(), None), ed25519.Ed25519PrivateKey)


def test_other_users_cannot_read_a_secret_and_printing_shows_none(state: State) -> None:
    ensure_secrets(state)
    assert {stat.S_IMODE(path.stat().st_mode) for path in everything(state.secrets)} == {0o600}
    secrets = read_secrets(state)
    assert secrets.valkey not in repr(secrets)
    assert not any(password in repr(secrets) for password in secrets.valkey_users.values())
