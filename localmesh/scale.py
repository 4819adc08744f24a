"""Parses how many processes of each service a mesh runs."""

from __future__ import annotations

from collections.abc import Iterable

from localmesh.composition import SERVICES

MOST_REPLICAS = 8


def parse_scale(texts: Iterable[str]) -> dict[str, int]:
    """Parses `executor=2`. Raises ValueError with what is allowed."""
    scale: dict[str, int] = {}
    for text in texts:
        service, _, count = text.partition("=")
        if service not in SERVICES or not count.isdigit() or not 1 <= int(count) <= MOST_REPLICAS:
            known = ", ".join(SERVICES)
            raise ValueError(
                f"{text!r} is not SERVICE=COUNT with a service of {known} and a count of 1 to {MOST_REPLICAS}"
            )
        scale[service] = int(count)
    return scale
