"""Which hosts a network policy names. One rule, for the arguments that hold URLs and for the way out of a sandbox. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What resolvers would take for a number, and so for an address in one of its older notations.
NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Hosts:
    """Hosts by name: exactly, or one level below `*.host` and not that host itself."""

    def __init__(self, patterns: Iterable[str]) -> None:
        named = [pattern.lower().removesuffix(".") for pattern in patterns]
        self._exact = frozenset(name for name in named if not name.startswith("*."))
        self._above = frozenset(name[2:] for name in named if name.startswith("*."))

    def __contains__(self, host: str) -> bool:
        """Say whether a host, in lower case and without a dot at its end, is named."""
        below = host.partition(".")[2]
        # A pattern is about names: nothing is one level below a part of an address.
        covered = below in self._above and not NUMERIC_LABEL.fullmatch(below.rpartition(".")[2])
        return covered or host in self._exact
