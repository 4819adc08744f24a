"""Resolves the entry points of tools to code on this machine, once per tool digest and revision of the packs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from libs.common.runtime.bounded_cache import BoundedCache
from services.executor.adapters.runners.packs.packs import Pack
from services.executor.adapters.runners.sandbox_plan import LIBRARY, path_inside
from services.executor.domain import errors
from services.executor.domain.run import CodeLabel
from services.executor.domain.tool import Tool

_CACHE_SIZE = 4096
_MAX_LABEL = 255

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResolvedEntryPoint(Generic[T]):
    """The code of a tool and the sandbox that it runs in."""

    target: T
    """What the runner starts or loads."""
    sandbox: str
    """The sandbox and the code in it, as the audit record names them. It differs for other code."""
    pack: Pack | None = None

    @property
    def binds(self) -> list[tuple[str, str]]:
        """The folders of the pack and of its packages, with their paths inside the sandbox; empty for a program of the
        system."""
        if self.pack is None:
            return []
        library = [] if self.pack.library is None else [(str(self.pack.library.folder), LIBRARY)]
        return [(str(self.pack.folder), path_inside(self.pack)), *library]


class EntryPointResolver(Generic[T]):
    """Caches the resolution of each tool digest, also of tools that cannot run here.

    A call runs the code that its decision record names, although the pack may have changed since: the label that
    `sandbox_name` returns refers to it.
    """

    def __init__(
        self, resolve: Callable[[Tool], ResolvedEntryPoint[T] | str], revision: Callable[[], int] = lambda: 0
    ) -> None:
        """`resolve` returns what is missing, as a text, if the tool cannot run here. Another `revision` means that it
        may return something else."""
        self._resolve, self._revision = resolve, revision
        self._resolved_at = 0
        self._resolved: BoundedCache[str, ResolvedEntryPoint[T] | str] = BoundedCache(_CACHE_SIZE)

    def find(self, tool: Tool) -> ResolvedEntryPoint[T] | str:
        """Return the resolved entry point, or what is missing here."""
        if (revision := self._revision()) != self._resolved_at:
            self._resolved, self._resolved_at = BoundedCache(_CACHE_SIZE), revision
        if tool.digest in self._resolved:
            return self._resolved[tool.digest]
        return self._resolved.put(tool.digest, self._resolve(tool))

    def require(self, tool: Tool, label: str = "") -> ResolvedEntryPoint[T]:
        """Return the entry point that a label refers to, else the present one.

        Raises TOOL_UNAVAILABLE if the tool cannot run here.
        """
        if isinstance(label, CodeLabel) and isinstance(label.code, ResolvedEntryPoint):
            return label.code
        resolved = self.find(tool)
        if isinstance(resolved, str):
            raise errors.nothing_runs_it(tool.name, resolved)
        return resolved

    def sandbox_name(self, tool: Tool) -> str | None:
        """Return the sandbox and code label; None if the tool cannot run here."""
        resolved = self.find(tool)
        return None if isinstance(resolved, str) else CodeLabel(resolved.sandbox, resolved)

    def missing_for(self, tool: Tool) -> str:
        """Return what is missing here; empty if the tool can run."""
        resolved = self.find(tool)
        return resolved if isinstance(resolved, str) else ""


def missing_pack(name: str) -> str:
    """Return the text for a pack that is not loaded here."""
    return f"the tool pack {name} is not loaded; put it into a folder of TOOLMESH_TOOL_PACKS"


def missing_volumes(names: Sequence[str]) -> str:
    """Return the text for volumes that this executor does not have."""
    return f"there is no volume {', '.join(names)} here; name it in TOOLMESH_VOLUMES and restart the executor"


def sandbox_label(sandbox: str, kind: str, code: str) -> str:
    """Return the label of a sandbox, a runner kind and a program or pack, truncated for the audit record."""
    return f"{sandbox} {kind} {code}"[:_MAX_LABEL]
