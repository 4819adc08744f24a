"""The credentials of tools under test: values that the author gives, and made-up ones in place of all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from libs.common.secret_store.secret import Binding, Secret
from services.executor.domain.tool import Tool


class TrialSecrets:
    """Implements SecretStore. Every value may be used by every tool of the pack."""

    def __init__(self, values: Mapping[str, str], tools: Iterable[Tool]) -> None:
        """`values` are by the names of the secrets."""
        tools = tuple(tools)
        self._values = values
        self._binding = Binding(
            tuple(host for tool in tools for host in tool.confinement.hosts),
            tuple({tool.qualified.rpartition(".")[0] for tool in tools}),
        )

    async def get(self, name: str, tenant: str) -> Secret:
        """Implement `SecretStore.get`."""
        return Secret(name, self._values.get(name, f"test-value-of-{name}"), self._binding, tenant)

    async def reject(self, name: str, tenant: str) -> None:
        """Do nothing: there is no other value."""
