"""The egress proxy: the only network access of a sandbox, through one unix socket per plan.

The socket identifies the sandbox, so a process cannot use the rules of another. The proxy supports CONNECT and plain
HTTP with absolute URLs, resolves names itself, connects to the addresses it checked, and does not inspect tunnels.
Redirects are followed by the tool, as new requests.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from libs.common.egress.public_addresses import Network, PublicAddresses
from libs.common.egress.resolver import SystemResolver
from libs.common.errors import MeshError
from services.executor.adapters.sandbox.egress.destination import AllowedDestinations
from services.executor.adapters.sandbox.egress.dialer import Dialer, Resolve
from services.executor.adapters.sandbox.egress.listener import (
    DEFAULT_LIMITS,
    TRAFFIC_LIMIT,
    EgressLimits,
    EgressListener,
    EgressRefusal,
)
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir
from services.executor.domain.errors import network_forbidden, traffic_exceeded

# A unix socket path has at most 107 bytes, of which the directory and file name need up to 81.
_MAX_PARENT_LENGTH = 26


class EgressProxy:
    """All egress listeners of one executor."""

    def __init__(
        self, internal: Sequence[Network] = (), *, resolve: Resolve | None = None, limits: EgressLimits = DEFAULT_LIMITS
    ) -> None:
        self._limits = limits
        self._resolver = SystemResolver()
        self._resolve, self._addresses = resolve, PublicAddresses(internal)
        self._folder = LockedTempDir("egress", mode=0o711, within=_socket_parent())
        self._listeners: set[EgressListener] = set()

    async def open(self, hosts: Sequence[str], ports: Sequence[int]) -> EgressListener:
        """Open a listener for these hosts (exact, or one level below `*.host`) and ports. The caller closes it."""
        path = self._folder.path / f"{secrets.token_hex(12)}.sock"
        resolve = self._resolve or partial(self._resolver.resolve, group=frozenset(hosts))
        dialer = Dialer(resolve, self._addresses, seconds=self._limits.connect_seconds)
        listener = EgressListener(
            path, AllowedDestinations(hosts, ports), dialer, self._limits, on_close=self._listeners.discard
        )
        self._listeners.add(listener)
        await listener.open()
        return listener

    async def close(self) -> None:
        """Close every open listener."""
        for listener in tuple(self._listeners):
            await listener.close()
        self._resolver.close()
        self._folder.remove()


def _socket_parent() -> Path | None:
    """Return the parent directory of sockets: the default, unless its path is too long for a socket."""
    return None if len(os.fsencode(tempfile.gettempdir())) <= _MAX_PARENT_LENGTH else Path("/tmp")  # noqa: S108


def refusal_error(refusals: Sequence[EgressRefusal]) -> MeshError | None:
    """Return the error for the first refused connection; None if there is none."""
    for refusal in refusals:
        if refusal.reason == TRAFFIC_LIMIT:
            return traffic_exceeded(refusal.host)
        return network_forbidden(refusal.host, refusal.port, refusal.reason)
    return None
