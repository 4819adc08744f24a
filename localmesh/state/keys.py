"""Creates the secrets of a mesh. Separate from reading them, which needs no cryptography library."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from localmesh.state.files import write_private
from localmesh.state.secrets import LOGINS, VALKEY_USERS, SecretFiles
from localmesh.state.state import State


def ensure_secrets(state: State) -> None:
    """Creates the missing secrets of a state folder."""
    files = SecretFiles(state.secrets)
    for role in LOGINS:
        _ensure(files.database(role), new_password)
    _ensure(files.valkey, new_password)
    for name in VALKEY_USERS:
        _ensure(files.valkey_user(name), new_password)
    _ensure(files.checkpoint_key, new_ed25519_pem)
    files.tool_secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (files.sealing_keys, files.console_keys):
        if not any(folder.glob("*.key")):
            _ensure(folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.key", new_sealing_key)
    if not any(files.signing_keys.glob("*.pem")):
        # The file name orders the keys: authz signs with the newest and still publishes the others.
        _ensure(files.signing_keys / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.pem", new_rsa_pem)


def _ensure(path: Path, make: Callable[[], bytes]) -> None:
    if not path.exists():
        write_private(path, make())


def new_password() -> bytes:
    """Return a new password: hexadecimal, so safe in a URL, in SQL and in a configuration file without quoting."""
    return secrets.token_hex(24).encode()


def new_sealing_key() -> bytes:
    """Return a new key that seals stored values."""
    return base64.b64encode(secrets.token_bytes(32))


def new_rsa_pem() -> bytes:
    """Return a new key that signs tokens."""
    return _pem(rsa.generate_private_key(public_exponent=65537, key_size=3072))


def new_ed25519_pem() -> bytes:
    """Return a new key that signs checkpoints."""
    return _pem(ed25519.Ed25519PrivateKey.generate())


def _pem(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
