"""Who has an identity in the mesh, and where its certificate and key lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Six services, Envoy, the person at the command line, and a client inside the mesh.
IDENTITIES = (
    "registry",
    "authz",
    "executor",
    "approval",
    "audit",
    "gateway",
    "edge",
    "operator",
    "orchestrator",
)


@dataclass(frozen=True)
class Identity:
    """Where the certificate and the key of one name lie."""

    cert: Path
    key: Path


@dataclass(frozen=True)
class Pki:
    """Where the certificates of a mesh lie."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def of(self, name: str) -> Identity:
        return Identity(cert=self.folder / f"{name}.pem", key=self.folder / f"{name}.key")
