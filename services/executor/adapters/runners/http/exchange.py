"""Sends one request of a call and reads its answer. Redirects stay under the network policy and carry no secret."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpcore

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.url_template import UrlTemplate, UrlTemplateError, origin_of, parse_url_template
from services.executor.adapters.runners.http.answer import HttpAnswer, read_answer
from services.executor.adapters.runners.http.connections import (
    ForbiddenAddressError,
    HttpConnections,
    UnresolvedHostError,
)
from services.executor.adapters.runners.http.secret_headers import BoundSecrets
from services.executor.adapters.secrets.remove_values import remove_values
from services.executor.domain import errors
from services.executor.domain.arguments.hosts import Hosts
from services.executor.domain.http.build_request import HttpRequest
from services.executor.domain.http.endpoint import BODILESS_METHODS
from services.executor.domain.scheduling.heavy_work import WorkShare
from services.executor.domain.tool import Confinement

_MAX_REDIRECTS = 3
_FIXED_HEADERS = (
    ("accept", "application/json, text/plain;q=0.5"),
    # Compressed answers could expand beyond the limit.
    ("accept-encoding", "identity"),
    ("user-agent", "toolmesh"),
)
# Nothing of the request has left before these.
_NOT_SENT = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)
_RETRYABLE = frozenset({Reason.EXTERNAL_UNAVAILABLE, Reason.EXTERNAL_RATE_LIMITED})


class AttemptError(Exception):
    """One attempt failed."""

    def __init__(self, error: MeshError, *, sent: bool, status: int = 0, detail: str = "") -> None:
        super().__init__(error.reason.name)
        self.error, self.sent, self.status, self.detail = error, sent, status, detail

    @property
    def retryable(self) -> bool:
        """Whether another attempt may help."""
        return self.error.reason in _RETRYABLE

    def matches(self, statuses: Collection[int]) -> bool:
        """Return whether the policy retries this failure; one without an answer always."""
        return not self.status or self.status in statuses


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes."""

    scheme: str
    host: str
    port: int
    path: str
    """With the query."""

    @property
    def origin(self) -> str:
        return origin_of(self.scheme, self.host, self.port)


@dataclass(frozen=True, slots=True)
class ExchangeResult:
    """The result in an answer, and for how long the service takes no more requests."""

    value: Any
    limited_for: float | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """The request of one call, which may be sent several times."""

    connections: HttpConnections
    confinement: Confinement
    url: UrlTemplate
    request: HttpRequest
    secrets: BoundSecrets
    share: WorkShare
    """Large answers are handled in it."""
    limit: int
    clock: Clock
    connect_seconds: float | None = None
    """The longest wait for a connection; None for all of the call's time."""

    async def send(self, until: float) -> ExchangeResult:
        """Return the result. Raises AttemptError, also when the time is over."""
        url, origin = self.url, self.url.origin
        target = Target(url.scheme, url.host, url.port, self._target_with_secrets())
        try:
            async with asyncio.timeout_at(until):
                answer = await self._follow(target)
                if answer.is_success:
                    value = await self.share.run_if_large(len(answer.body), partial(answer.value, self.limit))
                    return ExchangeResult(value, answer.limited_for)
        except TimeoutError:
            raise AttemptError(errors.external_timeout(origin, "unknown"), sent=True) from None
        except _NOT_SENT as error:
            raise _lost(origin, "unreachable", "none", error, sent=False) from None
        except UnresolvedHostError as error:
            raise _lost(origin, "unresolved", "none", error, sent=False) from None
        except ForbiddenAddressError as error:
            forbidden = errors.network_forbidden(url.host, url.port, error.rule)
            forbidden.metadata["effect"] = "none"
            raise AttemptError(forbidden, sent=False) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            raise _lost(origin, "broken_off", "unknown", error, sent=True) from None
        except MeshError as error:
            raise AttemptError(error, sent=True) from None
        failure = answer.failure(origin, self.secrets.names)
        raise AttemptError(failure, sent=True, status=answer.status, detail=answer.text)

    async def _follow(self, target: Target) -> HttpAnswer:
        """Return the answer at the end of the redirects. Only a request that reads follows them."""
        first = target.origin
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._send_once(target, is_first_origin=target.origin == first)
            if not answer.is_redirect or self.request.method not in BODILESS_METHODS:
                return answer
            target = self._redirected(target, answer.location)
        raise errors.external_answer_invalid("the service redirects too often")

    def _redirected(self, target: Target, location: str) -> Target:
        absolute = urljoin(f"{target.origin}{target.path}", location)
        try:
            parts = urlsplit(absolute)
            url = parse_url_template(absolute.partition("?")[0].partition("#")[0])
        except (UrlTemplateError, ValueError):
            raise errors.external_answer_invalid("the service redirects to an address that is not valid") from None
        outside = url.host not in Hosts(self.confinement.hosts) or url.port not in self.confinement.ports
        if outside or (target.scheme == "https" and url.scheme != "https"):
            raise errors.network_forbidden(url.host, url.port, "redirect_not_allowed")
        return Target(url.scheme, url.host, url.port, url.path + (f"?{parts.query}" if parts.query else ""))

    async def _send_once(self, target: Target, *, is_first_origin: bool) -> HttpAnswer:
        headers = [("host", target.origin.partition("://")[2]), *_FIXED_HEADERS, *self.request.headers]
        if is_first_origin:
            headers += self.secrets.headers
        if self.request.body or self.request.method not in BODILESS_METHODS:
            headers.append(("content-length", str(len(self.request.body))))
        message = httpcore.Request(
            self.request.method,
            httpcore.URL(
                scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
            ),
            headers=[(name.encode(), value.encode()) for name, value in headers],
            content=self.request.body,
            extensions={} if self.connect_seconds is None else {"timeout": {"connect": self.connect_seconds}},
        )
        response = await self.connections.send(target.scheme, message)
        try:
            answer = await read_answer(response, self.limit, self.clock.now())
        finally:
            await response.aclose()
        # A service may repeat what it was sent.
        clean = partial(remove_values, answer.body, self.secrets.values)
        return replace(answer, body=await self.share.run_if_large(len(answer.body), clean))

    def _target_with_secrets(self) -> str:
        query = "&".join(part for part in (self.request.query, *self.secrets.query) if part)
        return replace(self.request, query=query).target


def _lost(origin: str, cause: str, effect: str, error: Exception, *, sent: bool) -> AttemptError:
    # The text of a client's error may repeat the address, which may carry a secret: only its type is kept.
    return AttemptError(errors.external_unavailable(origin, cause, effect), sent=sent, detail=type(error).__name__)
