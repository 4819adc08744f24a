"""The credentials that the code of a sandboxed tool reads in one call."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from libs.common.json.jsonio import dump
from services.executor.adapters.secrets.binding import require_bound
from services.executor.adapters.secrets.remove_values import remove_cut_values, remove_values
from services.executor.domain import errors
from services.executor.domain.ports import SecretStore
from services.executor.domain.tool import Tool

# A fingerprint says whether a value changed, and to this process alone.
_KEY = os.urandom(32)


@dataclass(frozen=True, slots=True)
class CallSecrets:
    """The credentials of one call by the names that the code has for them. Its text shows no value."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def fingerprint(self) -> str:
        """Differs when a value does; empty without credentials."""
        if not self.values:
            return ""
        return hashlib.blake2b(dump(dict(self.values)), key=_KEY, digest_size=16).hexdigest()

    def remove_from(self, content: bytes) -> bytes:
        """Return the JSON that a tool sent without the values."""
        return remove_values(content, self.values.values()) if self.values else content

    def remove_from_text(self, text: str) -> str:
        """Return a text that may begin or end amid a value without the values and without their rest."""
        return remove_cut_values(text, tuple(self.values.values())) if self.values else text

    def remove_from_fields(self, value: Any) -> Any:
        """Return a small JSON value without the values in its texts."""
        if not self.values:
            return value
        if isinstance(value, str):
            return self.remove_from_text(value)
        if isinstance(value, dict):
            return {name: self.remove_from_fields(item) for name, item in value.items()}
        return [self.remove_from_fields(item) for item in value] if isinstance(value, list) else value


NO_SECRETS = CallSecrets()


async def read_call_secrets(tool: Tool, tenant: str, store: SecretStore) -> CallSecrets:
    """Return the credentials of a tool's code for a tenant, as they are now. Raises the errors of credentials.

    What enters a sandbox may leave it to any host that the sandbox reaches, so a secret is bound to all of them.
    """
    if not tool.secrets:
        return NO_SECRETS
    values: dict[str, str] = {}
    for name, reference in tool.secrets:
        secret = await store.get(reference, tenant)
        require_bound(secret, tool.qualified.rpartition(".")[0], tool.confinement.hosts)
        values[name] = secret.value
    return CallSecrets(values)


class EmptySecretStore:
    """Implements SecretStore for an executor without credentials."""

    async def get(self, name: str, tenant: str) -> Any:
        """Raise CREDENTIAL_NOT_FOUND."""
        raise errors.credential_not_found(name)

    async def reject(self, name: str, tenant: str) -> None:
        """Do nothing: there is none."""
