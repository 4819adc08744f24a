"""Volumes of a deployment, and the name of the folder that each tenant has in one.

A volume holds a folder per tenant, and a run sees its tenant's folder alone. A deployment may declare a volume shared:
then all tenants see all of it.
"""

from __future__ import annotations

import hashlib
import string
from dataclasses import dataclass
from pathlib import Path

NO_TENANT = "no-tenant"
"""The folder of callers without a tenant."""
_PREFIX, _HASHED = "tenant-", "tenant-sha256="
# Upper case is encoded too: some file systems do not distinguish it.
_PLAIN = frozenset(f"{string.ascii_lowercase}{string.digits}_-".encode())
_MAX_NAME = 200
"""File systems allow 255 bytes."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder that tools may see by the volume's name."""

    folder: Path
    shared: bool = False
    """True if all tenants see all of it."""

    def folder_of(self, tenant: str) -> Path:
        """Return the folder that runs of a tenant see."""
        return self.folder if self.shared else self.folder / tenant_folder_name(tenant)


def tenant_folder_name(tenant: str) -> str:
    """Return a name that is a single step of a path and differs for every two tenants."""
    if not tenant:
        return NO_TENANT
    text = tenant.encode("utf-8", "surrogatepass")
    name = _PREFIX + "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in text)
    # `=` is always encoded, so no other tenant has the name of a hashed one.
    return name if len(name) <= _MAX_NAME else _HASHED + hashlib.sha256(text).hexdigest()
