"""The only way out of a sandbox: a proxy on a unix socket that belongs to one plan.

The socket says whose traffic it is, so nothing that a confined process sends can make it somebody else. The proxy speaks CONNECT and
plain HTTP with absolute addresses, reads names itself, connects to the very addresses it checked, and never looks inside a
tunnel. What a server redirects to is for the tool to ask for, and is checked like everything else.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from libs.common.errors import MeshError
from services.executor.adapters.sandbox.egress.destination import AllowedDestinations
from services.executor.adapters.sandbox.egress.dialer import Dialer, Resolve, SystemResolver
from services.executor.adapters.sandbox.egress.listener import (
    DEFAULT_LIMITS,
    TRAFFIC_LIMIT,
    EgressLimits,
    EgressListener,
    EgressRefusal,
)
from services.executor.adapters.sandbox.egress.public_addresses import Network, PublicAddresses
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir
from services.executor.domain.errors import network_forbidden, traffic_exceeded

# The kernel takes 107 bytes for a socket's name, of which a folder and a name of ours need 52.
_LONGEST_FOLDER = 50


class EgressProxy:
    """All ways out of one executor."""

    def __init__(
        self, internal: Sequence[Network] = (), *, resolve: Resolve | None = None, limits: EgressLimits = DEFAULT_LIMITS
    ) -> None:
        self._limits = limits
        self._names = SystemResolver()
        self._resolve, self._addresses = resolve, PublicAddresses(internal)
        self._folder = LockedTempDir("egress", mode=0o711, within=_near())
        self._gates: set[EgressListener] = set()

    async def open(self, hosts: Sequence[str], ports: Sequence[int]) -> EgressListener:
        """Open a way out to these hosts (exactly, or one level below `*.host`) on these ports. Whoever opens it closes it."""
        path = self._folder.path / f"{secrets.token_hex(12)}.sock"
        resolve = self._resolve or partial(self._names, whose=frozenset(hosts))
        dialer = Dialer(resolve, self._addresses, seconds=self._limits.connect_seconds)
        gate = EgressListener(
            path, AllowedDestinations(hosts, ports), dialer, self._limits, on_close=self._gates.discard
        )
        self._gates.add(gate)
        await gate.open()
        return gate

    async def close(self) -> None:
        """Close every way out that is still open."""
        for gate in tuple(self._gates):
            await gate.close()
        self._names.close()
        self._folder.remove()


def _near() -> Path | None:
    """Where sockets lie: with everything else that is temporary, unless the kernel could not take the name of a socket there."""
    return None if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER else Path("/tmp")  # noqa: S108


def refusal_error(refusals: Sequence[EgressRefusal]) -> MeshError | None:
    """Return what a call ends with that was refused a way out; None if it was refused nothing."""
    for refusal in refusals:
        if refusal.reason == TRAFFIC_LIMIT:
            return traffic_exceeded(refusal.host)
        return network_forbidden(refusal.host, refusal.port, refusal.reason)
    return None
