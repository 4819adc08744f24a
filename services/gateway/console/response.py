"""Responses of the console, with the headers that every one of them has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple

from services.gateway.transport.asgi_types import Header, Headers, Send

HTML = b"text/html; charset=utf-8"
# Scripts and styles come from files of the console only, and no other page may frame it. The referrer policy is not
# `no-referrer`, because browsers would then send `Origin: null` with forms.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", _POLICY),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
NO_STORE: Header = (b"cache-control", b"no-store")


class Response(NamedTuple):
    """One whole response."""

    status: int
    body: bytes = b""
    content_type: bytes = HTML
    headers: tuple[Header, ...] = (NO_STORE,)

    def with_headers(self, *more: Header) -> Response:
        """Return the response with further headers."""
        return self._replace(headers=(*self.headers, *more))


class EventStream(NamedTuple):
    """A response of server-sent events, which lasts."""

    events: AsyncGenerator[bytes, None]
    release: Callable[[], None]
    """Called when the stream is over."""


def redirect(path: str) -> Response:
    """Return a redirect that is followed with GET."""
    return Response(303, headers=(NO_STORE, (b"location", path.encode("ascii"))))


async def send_response(send: Send, response: Response, *, head: bool, more: Headers) -> None:
    """Send a response; for HEAD without its body."""
    headers = [
        *SECURITY_HEADERS,
        *response.headers,
        (b"content-type", response.content_type),
        (b"content-length", str(len(response.body)).encode()),
        *more,
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else response.body})


async def send_events(send: Send, stream: EventStream, more: Headers) -> None:
    """Send events until the stream ends."""
    headers = [*SECURITY_HEADERS, NO_STORE, (b"content-type", b"text/event-stream"), *more]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with aclosing(stream.events) as events:
        async for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
