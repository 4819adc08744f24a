"""Applies the rates of a caller to its requests, before anything is asked of a service."""

from __future__ import annotations

from typing import Protocol

from services.gateway.domain.rate_limits import Rate, RateLimits


class Owner(Protocol):
    """Who a token belongs to."""

    @property
    def owner(self) -> str:
        """Names tenant and subject."""
        ...


class ReadOwner(Protocol):
    """Reads the owner of a token."""

    def read(self, token: str) -> Owner:
        """Return the owner. Raises TOKEN_MALFORMED for what has none."""
        ...


class RequestLimits:
    """Counts by tenant and subject, whatever token they show."""

    def __init__(self, callers: ReadOwner, limits: RateLimits) -> None:
        self._callers, self._limits = callers, limits

    def take(self, token: str, rate: Rate, count: int = 1) -> None:
        """Count so many. Raises RATE_LIMITED. Without a token nothing is counted: every service refuses the call."""
        if token:
            self._limits.take(self._callers.read(token).owner, rate, count)
