"""Counts the streams of a process.

Each holds a slot of its process, and on behalf of a caller one of the caller's subject and one of its tenant. A caller
that opens too many is refused before anything is read; other callers keep their slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from libs.common.call_context import serving
from libs.common.errors import MeshError, Reason


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The number of streams that may be open at once."""

    per_subject: int = 8
    per_tenant: int = 32
    per_process: int = 256


class StreamSlots:
    """Admits streams up to the limits."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._held: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def hold(self, subject: str, tenant: str) -> Iterator[None]:
        """Hold a slot while a stream of a caller is open; both names are empty for a peer of the mesh. Raises
        RATE_LIMITED if the subject or the tenant has too many, OVERLOADED if the process has."""
        keys = self._admit(subject, tenant)
        self._held.update(keys)
        try:
            yield
        finally:
            self._held.subtract(keys)
            for key in keys:
                if not self._held[key]:
                    del self._held[key]

    def _admit(self, subject: str, tenant: str) -> list[tuple[str, str]]:
        wanted = [("process", "", self._limits.per_process)]
        if subject:
            wanted.append(("subject", f"{tenant} {subject}", self._limits.per_subject))
        if tenant:
            wanted.append(("tenant", tenant, self._limits.per_tenant))
        for scope, name, limit in reversed(wanted):
            if self._held[scope, name] >= limit:
                raise _too_many(scope, limit)
        return [(scope, name) for scope, name, _ in wanted]


def stream_holder() -> tuple[str, str]:
    """Return subject and tenant of the caller that is served; both empty for a peer of the mesh."""
    identity = serving().identity
    return ("", "") if identity is None else (identity.subject, identity.tenant)


def _too_many(scope: str, limit: int) -> MeshError:
    metadata = {"scope": scope, "limit_streams": str(limit)}
    if scope == "process":
        return MeshError(Reason.OVERLOADED, metadata=metadata, retry_after=1.0)
    message = f"The {scope} has {limit} streams open here, and may have no more: end one first."
    return MeshError(Reason.RATE_LIMITED, message=message, metadata=metadata, retry_after=1.0)
