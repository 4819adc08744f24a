"""Wakes what depends on a session when any replica changed it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def session_digest(session: str) -> str:
    """Return the name of a session in stores and messages: its id is a secret."""
    return hashlib.sha256(session.encode()).hexdigest()


class SessionChanges:
    """Calls listeners by the digest of their session."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    @contextmanager
    def follow(self, session: str, listener: Callable[[], None]) -> Iterator[None]:
        """Call the listener with each change of a session, in this context."""
        digest = session_digest(session)
        self._listeners.setdefault(digest, []).append(listener)
        try:
            yield
        finally:
            same = self._listeners[digest]
            same.remove(listener)
            if not same:
                del self._listeners[digest]

    def signal(self, digest: str) -> None:
        """Say that a session changed."""
        for listener in list(self._listeners.get(digest, ())):
            listener()

    def signal_all(self) -> None:
        """Say that any session may have changed: messages were missed."""
        for digest in list(self._listeners):
            self.signal(digest)
