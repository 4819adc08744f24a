"""Ports of MCP: sessions that every replica knows, messages between replicas, and the registry's changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from libs.common.tool_names import ToolName
from services.gateway.mcp.context import ClientFacts


class Sessions(Protocol):
    """Keeps the sessions of each caller. Raises SERVICE_UNAVAILABLE while the store does not answer."""

    async def open(self, owner: str, client: ClientFacts) -> str:
        """Begin a session and return its id, a secret. The oldest ones of an owner with very many end."""
        ...

    async def get(self, owner: str, session: str) -> ClientFacts | None:
        """Return what the client of a session said of itself; None if the owner has no such session."""
        ...

    async def update(self, owner: str, session: str, client: ClientFacts) -> None:
        """Replace what the client said, for every replica."""
        ...

    async def end(self, owner: str, session: str) -> bool:
        """End a session on every replica; return whether there was one."""
        ...


class PartialAnswers(Protocol):
    """Collects the answers to a question that asks for several things. Raises SERVICE_UNAVAILABLE like Sessions."""

    async def collect(self, question: str, key: str, answer: bytes, keys: Sequence[str]) -> dict[str, bytes] | None:
        """Keep an answer for every replica; return all of them once each key has one, else None."""
        ...

    async def forget(self, question: str, keys: Sequence[str]) -> None:
        """Forget the answers: the tool has them. Never raises; they are forgotten later otherwise."""
        ...


class Subscriptions(Protocol):
    """Keeps which resources a session is subscribed to, by upstream. Raises SERVICE_UNAVAILABLE like Sessions."""

    async def add(self, owner: str, session: str, namespace: str, uri: str) -> None:
        """Add a resource, for every replica. Raises RATE_LIMITED for a session with too many."""
        ...

    async def remove(self, owner: str, session: str, namespace: str, uri: str) -> None:
        """Remove a resource, for every replica; without it nothing happens."""
        ...

    async def list(self, session: str, namespace: str) -> frozenset[str]:
        """Return the resources of an upstream."""
        ...


class Cancellations(Protocol):
    """Cancels requests wherever they run."""

    async def cancel(self, key: str) -> None:
        """Cancel the request with this key, on every replica."""
        ...


class ToolFacts(Protocol):
    """What the gateway knows of the registered tools, from the registry's change stream."""

    def has_tags(self, tool: ToolName, tags: Collection[str]) -> bool:
        """Return whether a version of the tool has all the tags.

        Raises SERVICE_UNAVAILABLE before the first snapshot.
        """
        ...

    def requires_key(self, tool: ToolName) -> bool:
        """Return whether a version of the tool must be called with an idempotency key."""
        ...

    def runs_as_job(self, tool: ToolName) -> bool:
        """Return whether a version of the tool reports progress, or may take longer than a request should."""
        ...

    def shows_content(self, tool: ToolName) -> bool:
        """Return whether the result of the tool is content of an MCP server, which clients get as it is."""
        ...

    def method_of(self, tool: ToolName) -> str:
        """Return the method of an MCP server that the tool stands for; empty for any other tool."""
        ...

    def subscribe(self, listener: Callable[[ToolName], None]) -> Callable[[], None]:
        """Call the listener with each tool that changes; return what ends that."""
        ...
