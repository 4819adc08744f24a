"""Reads the credentials of tools from folders and Vault, for every call, so that a rotated one holds for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from libs.common.runtime.clock import Clock
from libs.common.secret_store.folders import SecretFolder, SecretUnreadableError
from libs.common.secret_store.secret import Secret
from services.executor.domain import errors

_READ_SECONDS = 2.0
# Their own: a store that hangs takes no thread from other work.
_THREADS = 8


class FolderSecrets:
    """Looks for a secret of the tenant in every folder, then for one that all tenants share."""

    def __init__(self, folders: Sequence[SecretFolder], clock: Clock) -> None:
        self._folders, self._clock = tuple(folders), clock
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="secrets")

    async def get(self, name: str, tenant: str) -> Secret:
        """Return the secret that holds now."""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                # A mounted folder may hang.
                secret = await asyncio.get_running_loop().run_in_executor(self._threads, self._find, name, tenant)
        except SecretUnreadableError:
            raise errors.credential_unreadable(name) from None
        except (OSError, TimeoutError):
            raise errors.secret_store_unavailable(name) from None
        if secret is None:
            raise errors.credential_not_found(name)
        if secret.is_expired(self._clock.now()):
            raise errors.credential_expired(name)
        return secret

    async def reject(self, name: str, tenant: str) -> None:
        """Do nothing: every call reads the files again."""

    async def close(self) -> None:
        """End the threads, without waiting for one that hangs."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _find(self, name: str, tenant: str) -> Secret | None:
        for owner in dict.fromkeys((tenant, "")):
            for folder in self._folders:
                if (secret := folder.find(name, owner)) is not None:
                    return secret
        return None
