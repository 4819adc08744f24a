"""Slow HTTPS servers do not block other fetches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from services.authz.adapters.issuers.https_documents import MAX_CONCURRENT, DocumentUnavailableError, HttpsDocuments
from services.authz.tests.https_server import HttpsServer, serving

PLACE = "/keys"


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def https_server(pki: Any, ended: threading.Event) -> Iterator[HttpsServer]:
    with serving(pki) as server:
        yield server
        ended.set()


async def test_a_sender_that_trickles_its_headers_is_given_up_on(
    https_server: HttpsServer, pki: Any, ended: threading.Event
) -> None:
    def trickling(handler: BaseHTTPRequestHandler) -> None:
        """Say something that is not the end, more often than any single read would be given up."""
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nx-slow: ")
        while not ended.wait(0.05):
            handler.wfile.write(b"x")

    https_server.documents[PLACE] = trickling
    documents = HttpsDocuments(pki.ca, timeout=0.5)
    async with asyncio.timeout(20):
        with pytest.raises(DocumentUnavailableError):
            await documents.fetch(https_server.address + PLACE)


async def test_slow_servers_do_not_block_other_threads(
    https_server: HttpsServer, pki: Any, ended: threading.Event
) -> None:
    https_server.documents[PLACE] = lambda handler: ended.wait() and None  # type: ignore[assignment, func-returns-value]
    documents = HttpsDocuments(pki.ca, timeout=600)
    fetching = [asyncio.ensure_future(documents.fetch(https_server.address + PLACE)) for _ in range(64)]
    async with asyncio.timeout(20):
        while len(https_server.requested) < MAX_CONCURRENT:  # noqa: ASYNC110  (the server is another thread)
            await asyncio.sleep(0.01)
        # As tokens are signed, and as keys are looked at.
        await asyncio.to_thread(lambda: None)
    assert not any(one.done() for one in fetching)
    for one in fetching:
        one.cancel()
    ended.set()
    await asyncio.gather(*fetching, return_exceptions=True)


async def test_a_fetch_that_waits_too_long_for_a_thread_is_not_sent(
    https_server: HttpsServer, pki: Any, ended: threading.Event
) -> None:
    https_server.documents[PLACE] = lambda handler: ended.wait() and None  # type: ignore[assignment, func-returns-value]
    documents = HttpsDocuments(pki.ca, timeout=0.5)
    fetching = [documents.fetch(https_server.address + PLACE) for _ in range(MAX_CONCURRENT * 3)]
    async with asyncio.timeout(20):
        found = await asyncio.gather(*fetching, return_exceptions=True)
    assert {type(one) for one in found} == {DocumentUnavailableError}
    assert len(https_server.requested) < MAX_CONCURRENT * 3
