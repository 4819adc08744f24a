"""Matches host names against a network policy, for URL arguments and for the egress proxy. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Labels that resolvers treat as numbers, and so as an IP address in an older notation.
NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Hosts:
    """Host patterns: exact names, or `*.host` for one level below that host."""

    def __init__(self, patterns: Iterable[str]) -> None:
        named = [pattern.lower().removesuffix(".") for pattern in patterns]
        self._exact = frozenset(name for name in named if not name.startswith("*."))
        self._above = frozenset(name[2:] for name in named if name.startswith("*."))

    def __contains__(self, host: str) -> bool:
        """Return whether a host matches, in lower case and without a trailing dot."""
        below = host.partition(".")[2]
        # Patterns match names only: a part of an IP address has no levels.
        covered = below in self._above and not NUMERIC_LABEL.fullmatch(below.rpartition(".")[2])
        return covered or host in self._exact
