"""Documents of strangers, who may take their time: nobody else waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from services.authz.adapters.issuers.https_documents import AT_ONCE, DocumentUnavailableError, HttpsDocuments
from services.authz.tests.elsewhere import Elsewhere, serving

PLACE = "/keys"


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def elsewhere(pki: Any, ended: threading.Event) -> Iterator[Elsewhere]:
    with serving(pki) as server:
        yield server
        ended.set()


async def test_a_sender_that_trickles_its_headers_is_given_up_on(
    elsewhere: Elsewhere, pki: Any, ended: threading.Event
) -> None:
    def trickling(handler: BaseHTTPRequestHandler) -> None:
        """Say something that is not the end, more often than any single read would be given up."""
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nx-slow: ")
        while not ended.wait(0.05):
            handler.wfile.write(b"x")

    elsewhere.documents[PLACE] = trickling
    documents = HttpsDocuments(pki.ca, timeout=0.5)
    async with asyncio.timeout(20):
        with pytest.raises(DocumentUnavailableError):
            await documents.fetch(elsewhere.address + PLACE)


async def test_strangers_who_do_not_answer_hold_up_nobody_else(
    elsewhere: Elsewhere, pki: Any, ended: threading.Event
) -> None:
    elsewhere.documents[PLACE] = lambda handler: ended.wait() and None  # type: ignore[func-returns-value]
    documents = HttpsDocuments(pki.ca, timeout=600)
    fetching = [asyncio.ensure_future(documents.fetch(elsewhere.address + PLACE)) for _ in range(64)]
    async with asyncio.timeout(20):
        while len(elsewhere.asked) < AT_ONCE:  # noqa: ASYNC110  (the server is another thread)
            await asyncio.sleep(0.01)
        # As tokens are signed, and as keys are looked at.
        await asyncio.to_thread(lambda: None)
    assert not any(one.done() for one in fetching)
    for one in fetching:
        one.cancel()
    ended.set()
    await asyncio.gather(*fetching, return_exceptions=True)


async def test_whose_turn_comes_too_late_is_not_asked_for(
    elsewhere: Elsewhere, pki: Any, ended: threading.Event
) -> None:
    elsewhere.documents[PLACE] = lambda handler: ended.wait() and None  # type: ignore[func-returns-value]
    documents = HttpsDocuments(pki.ca, timeout=0.5)
    fetching = [documents.fetch(elsewhere.address + PLACE) for _ in range(AT_ONCE * 3)]
    async with asyncio.timeout(20):
        found = await asyncio.gather(*fetching, return_exceptions=True)
    assert {type(one) for one in found} == {DocumentUnavailableError}
    assert len(elsewhere.asked) < AT_ONCE * 3
