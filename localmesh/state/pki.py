"""Paths of the certificates and keys of a local mesh."""

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
    """The certificate and key files of one name."""

    cert: Path
    key: Path


@dataclass(frozen=True)
class Pki:
    """The certificate files of a mesh."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def of(self, name: str) -> Identity:
        return Identity(cert=self.folder / f"{name}.pem", key=self.folder / f"{name}.key")
