"""Secrets in memory, at the port of a cluster's."""

from __future__ import annotations

from collections.abc import Mapping

from localmesh.deploy.secret_store import OPAQUE


class MemorySecrets:
    """A cluster's secrets as a dictionary."""

    def __init__(self) -> None:
        self.content: dict[tuple[str, str], dict[str, bytes]] = {}

    def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        return self.content.get((namespace, name))

    def create(self, namespace: str, name: str, content: Mapping[str, bytes], kind: str = OPAQUE) -> None:
        self.content.setdefault((namespace, name), dict(content))

    def replace(self, namespace: str, name: str, content: Mapping[str, bytes], kind: str = OPAQUE) -> None:
        self.content[namespace, name] = dict(content)
