"""A session with Vault or OpenBao: logs in, renews its token, and logs in again when that ends. Its methods block.

The client library is imported with the first session.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

_SECONDS = 1.5
# A token is renewed when so much of its time is over.
_RENEW_SHARE = 2 / 3
_MAX_CREDENTIAL = 64 * 1024


class VaultLogin(StrEnum):
    """How an executor proves who it is."""

    APPROLE = "approle"
    KUBERNETES = "kubernetes"
    JWT = "jwt"
    TOKEN = "token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class VaultAddress:
    """Where the server is, and how to log in there."""

    url: str
    login: VaultLogin
    credential: Path
    """A file, read for every login: the secret id, the JWT or the token."""
    role: str = ""
    """The role; the role id of an AppRole."""
    auth_mount: str = ""
    """Where the login is mounted; empty for its own name."""
    namespace: str = ""
    ca_file: Path | None = None


class VaultDeniedError(Exception):
    """The server refuses the login, or the token that came of it. The message never holds a credential."""


class VaultSession:
    """Reads with a token that holds. Used by several threads."""

    def __init__(self, address: VaultAddress, *, now: Callable[[], float] = time.monotonic) -> None:
        self._address, self._now = address, now
        self._guard = threading.Lock()
        self._client: Any = None
        self._renew_at = self._ends_at = 0.0

    def read(self, mount: str, path: str) -> dict[str, Any] | None:
        """Return the newest version of a KV secret; None if there is none or it is deleted.

        Raises VaultDeniedError, and OSError if the server does not answer.
        """
        from hvac import exceptions
        from requests.exceptions import RequestException

        try:
            client = self._authenticated()
            try:
                return _read(client, mount, path)
            except exceptions.Forbidden:
                # The token may have been revoked meanwhile.
                return _read(self._authenticated(rejected=client.token), mount, path)
        except (exceptions.Forbidden, exceptions.Unauthorized, exceptions.InvalidRequest):
            raise VaultDeniedError("the server refuses the login or the path") from None
        except (exceptions.VaultError, RequestException, ValueError, LookupError, TypeError) as error:
            # A redirect or another answer without JSON is no answer. The text of the error may repeat a credential.
            raise OSError(type(error).__name__) from None

    def _authenticated(self, *, rejected: str = "") -> Any:
        """Return a client whose token holds. A `rejected` token is replaced, unless another thread did that."""
        with self._guard:
            if (
                self._client is None
                or self._client.token == rejected
                or self._now() >= self._ends_at
                or (self._now() >= self._renew_at and not self._renew())
            ):
                self._log_in()
            return self._client

    def _log_in(self) -> None:
        address, client = self._address, _client(self._address)
        credential = _read_credential(address.credential)
        mount = address.auth_mount or address.login.value
        if address.login is VaultLogin.TOKEN:
            client.token = credential
            self._keep(client, client.auth.token.lookup_self()["data"]["ttl"])
            return
        if address.login is VaultLogin.APPROLE:
            answer = client.auth.approle.login(address.role, credential, use_token=False, mount_point=mount)
        elif address.login is VaultLogin.KUBERNETES:
            answer = client.auth.kubernetes.login(address.role, credential, use_token=False, mount_point=mount)
        else:
            answer = client.auth.jwt.jwt_login(address.role, credential, use_token=False, path=mount)
        client.token = answer["auth"]["client_token"]
        self._keep(client, answer["auth"]["lease_duration"])

    def _renew(self) -> bool:
        """Renew the token; return whether that gave it time."""
        from hvac import exceptions

        try:
            seconds = self._client.auth.token.renew_self()["auth"]["lease_duration"]
        except (exceptions.Forbidden, exceptions.InvalidRequest):
            return False
        left = self._ends_at - self._now()
        self._keep(self._client, seconds)
        # A token at the end of its longest time is renewed for less and less.
        return bool(seconds > left)

    def _keep(self, client: Any, seconds: float) -> None:
        """Use a client for so many seconds; 0 means a token without an end."""
        now, endless = self._now(), float("inf")
        self._client = client
        self._ends_at = now + seconds if seconds else endless
        self._renew_at = now + seconds * _RENEW_SHARE if seconds else endless


def _client(address: VaultAddress) -> Any:
    import hvac
    import requests

    session = requests.Session()
    # Neither proxies nor passwords of the environment.
    session.trust_env = False
    return hvac.Client(
        address.url,
        token="",
        verify=str(address.ca_file) if address.ca_file is not None else True,
        timeout=_SECONDS,
        # A redirect would carry the token elsewhere.
        allow_redirects=False,
        session=session,
        namespace=address.namespace or None,
    )


def _read(client: Any, mount: str, path: str) -> dict[str, Any] | None:
    from hvac import exceptions

    try:
        answer = client.secrets.kv.v2.read_secret_version(path, mount_point=mount, raise_on_deleted_version=True)
    except exceptions.InvalidPath:
        return None
    content = answer["data"]["data"]
    if not isinstance(content, dict):
        raise ValueError("the secret has no members")
    return content


def _read_credential(path: Path) -> str:
    with path.open() as file:
        return file.read(_MAX_CREDENTIAL).strip()
