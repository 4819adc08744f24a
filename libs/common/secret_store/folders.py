"""Two folders of secrets: encrypted files that `toolmesh secrets` writes, and files that a deployment mounts.

Both keep a secret of a tenant in the folder `tenants/{tenant}`, and one for all others beside it. Every read goes to
the disk, so that a replaced file holds for the next call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

import msgspec

from libs.common.sealing import Seal, SealError
from libs.common.secret_store.secret import (
    Secret,
    SecretFormError,
    check_name,
    check_value,
    parse_binding,
)

_SUFFIX, _BINDING, _TENANTS = ".sealed", ".json", "tenants"
_MAX_FILE = 64 * 1024
_DECODER = msgspec.msgpack.Decoder(Secret)


class SecretUnreadableError(Exception):
    """A stored secret cannot be read: its key is missing, it was changed, or it has no valid form."""


class SecretFolder(Protocol):
    """A folder of secrets. Its methods block."""

    def find(self, name: str, tenant: str) -> Secret | None:
        """Return the secret of exactly this tenant; None if there is none. Raises SecretUnreadableError or OSError."""
        ...


class SealedFolder:
    """Encrypted files. A file that is moved to another name or tenant cannot be opened."""

    def __init__(self, folder: Path, seal: Seal) -> None:
        self._folder, self._seal = folder, seal

    def find(self, name: str, tenant: str) -> Secret | None:
        """Read and decrypt one secret."""
        sealed = _read(self._folder, _directory(self._folder, tenant) / f"{name}{_SUFFIX}")
        return None if sealed is None else self._open(sealed, name, tenant)

    def put(self, secret: Secret) -> None:
        """Write a secret; one of the same name and tenant is replaced at once."""
        path = _directory(self._folder, secret.tenant) / f"{check_name(secret.name)}{_SUFFIX}"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sealed = self._seal.seal(msgspec.msgpack.encode(secret), _location(secret.name, secret.tenant))
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(sealed)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, name: str, tenant: str) -> bool:
        """Remove a secret; return whether there was one."""
        path = _directory(self._folder, tenant) / f"{check_name(name)}{_SUFFIX}"
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed

    def entries(self) -> Iterator[Secret]:
        """Yield every secret, by tenant and name."""
        for path in sorted(self._folder.rglob(f"*{_SUFFIX}")):
            inside = path.relative_to(self._folder).parts
            tenant = unquote(inside[1]) if len(inside) == 3 else ""
            if (secret := self.find(path.name.removesuffix(_SUFFIX), tenant)) is not None:
                yield secret

    def _open(self, sealed: bytes, name: str, tenant: str) -> Secret:
        try:
            return _DECODER.decode(self._seal.open(sealed, _location(name, tenant)))
        except (SealError, msgspec.MsgspecError) as error:
            raise SecretUnreadableError from error


class MountedFolder:
    """Plain files, such as a mounted Kubernetes Secret: `name` has the value, `name.json` the binding."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, name: str, tenant: str) -> Secret | None:
        """Read one secret and its binding."""
        folder = _directory(self._folder, tenant)
        value = _read(self._folder, folder / name)
        if value is None:
            return None
        binding = _read(self._folder, folder / f"{name}{_BINDING}")
        try:
            if binding is None:
                raise SecretFormError("there is no binding")
            return Secret(name, check_value(value.decode()), parse_binding(binding), tenant)
        except (SecretFormError, UnicodeDecodeError) as error:
            raise SecretUnreadableError from error


def _read(folder: Path, path: Path) -> bytes | None:
    """Return a file's content; None if it is missing. Raises OSError if the folder itself is missing."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE + 1)
    except FileNotFoundError:
        folder.stat()
        return None
    if len(content) > _MAX_FILE:
        raise SecretUnreadableError
    return content


def _directory(folder: Path, tenant: str) -> Path:
    # A dot is quoted too: a tenant called `..` has no folder outside.
    return folder / _TENANTS / quote(tenant, safe="").replace(".", "%2E") if tenant else folder


def _location(name: str, tenant: str) -> str:
    return f"secrets/{quote(tenant, safe='')}/{name}"
