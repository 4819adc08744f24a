"""The credentials of tools in a KV engine, version 2, of Vault or OpenBao."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import msgspec

from libs.common.secret_store.folders import SecretUnreadableError
from libs.common.secret_store.secret import Secret, SecretFormError, check_value, parse_binding
from libs.common.telemetry.log import Log
from services.executor.adapters.secrets.vault.session import VaultDeniedError, VaultSession

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")
# How long a server that did not answer is not asked again.
_AWAY_SECONDS = 1.0


class VaultFolder:
    """Implements SecretFolder. Every read asks the server, so that a rotated secret holds for the next call."""

    def __init__(
        self, session: VaultSession, path: str, log: Log, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`path` is the mount of the engine and a folder in it, such as `secret/toolmesh`."""
        self._session, self._log, self._now = session, log, now
        self._mount, _, self._folder = path.strip("/").partition("/")
        self._away_until = 0.0

    def find(self, name: str, tenant: str) -> Secret | None:
        """Read one secret: its `value`, and its binding in `hosts`, `namespaces` and `expires`."""
        if self._now() < self._away_until:
            raise OSError("the server did not answer a moment ago")
        owner = f"tenants/{_segment(tenant)}/" if tenant else ""
        try:
            content = self._session.read(self._mount, f"{self._folder}/{owner}{name}".lstrip("/"))
        except VaultDeniedError as error:
            self._log.warning("the secret server refuses", why=str(error), secret=name)
            raise OSError("refused") from None
        except OSError as error:
            self._away_until = self._now() + _AWAY_SECONDS
            self._log.warning("the secret server does not answer", cause=str(error))
            raise
        return None if content is None else _secret(name, tenant, content)


def _secret(name: str, tenant: str, content: dict[str, Any]) -> Secret:
    value, rest = content.get("value"), {key: each for key, each in content.items() if key != "value"}
    try:
        if not isinstance(value, str):
            raise SecretFormError("there is no value")
        return Secret(name, check_value(value), parse_binding(msgspec.json.encode(rest)), tenant)
    except SecretFormError as error:
        raise SecretUnreadableError from error


def _segment(tenant: str) -> str:
    """Return a tenant as one segment of a path, whatever its name holds."""
    return tenant if _PLAIN.fullmatch(tenant) else f"={tenant.encode().hex()}"
