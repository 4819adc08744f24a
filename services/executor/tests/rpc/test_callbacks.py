"""Callbacks of invocations to a real receiver: signed, retried, given up, and sent again on demand."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from toolmesh.executor.v1 import callback_delivery_pb2 as dpb
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common.errors import Reason
from libs.common.sql.engine import engine_for
from libs.common.tests.webhooks.test_sender import Receiver, raw
from libs.common.webhooks.signature import SIGNATURE, TIMESTAMP, signed_headers, signing_key
from services.executor.config import Settings
from services.executor.domain.callbacks import deliver_callbacks
from services.executor.tests.rpc.replicas import Replicas, refusal

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
MALLORY: dict[str, Any] = {"sub": "did:web:toolmesh.local:users:mallory"}
PENDING, DELIVERED, FAILED = (
    dpb.CALLBACK_DELIVERY_STATE_PENDING,
    dpb.CALLBACK_DELIVERY_STATE_DELIVERED,
    dpb.CALLBACK_DELIVERY_STATE_FAILED,
)
OK, BROKEN = raw(b"HTTP/1.1 204 No Content\r\n\r\n"), raw(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")


async def start(replicas: Replicas, url: str, secret: str = SECRET) -> Any:
    call = call_pb.InvokeRequest(tool="report_steps", arguments=b'{"steps":0}')
    request = pb.StartInvocationRequest(request=call, callback=pb.Callback(url=url, secret=secret))
    return (await replicas.ask(0, "StartInvocation", request)).invocation


class Deliveries:
    """The deliveries of one invocation."""

    def __init__(self, replicas: Replicas, engine: Any, name: str) -> None:
        self._replicas, self._engine, self._name = replicas, engine, name

    async def get(self, **claims: Any) -> Any:
        request = pb.ListCallbackDeliveriesRequest(invocation=self._name)
        found = (await self._replicas.ask(1, "ListCallbackDeliveries", request, **claims)).deliveries
        return found[0] if found else None

    async def tried(self, tries: int) -> Any:
        """Return the delivery once so many tries were noted."""
        while True:
            delivery = await self.get()
            if delivery is not None and delivery.tries >= tries and delivery.detail:
                return delivery
            await asyncio.sleep(0.02)

    async def make_due(self) -> None:
        """Let the time until the next try pass."""
        statement = "update callback_deliveries set next_time = now() where invocation_id = :id and owner = ''"
        async with self._engine.connect() as connection:
            await connection.execute(text(statement), {"id": self._name.removeprefix("invocations/")})

    async def redeliver(self, **claims: Any) -> Any:
        request = pb.RedeliverCallbackRequest(name=f"{self._name}/callbackDelivery")
        return (await self._replicas.ask(1, "RedeliverCallback", request, **claims)).delivery


async def test_the_end_of_an_invocation_is_reported_until_it_is_accepted(
    replicas: Replicas, executor_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the test makes due is not signalled.
    monkeypatch.setattr(deliver_callbacks, "POLL_SECONDS", 0.05)
    async with AsyncExitStack() as stack:
        engine = engine_for(executor_settings().database_url, schema="executor")
        stack.push_async_callback(engine.dispose)
        receiver = await stack.enter_async_context(Receiver().listening())
        private = await stack.enter_async_context(Receiver().listening())
        url = f"http://127.0.0.1:{receiver.port}/hook"
        job = await start(replicas, url)
        delivery = Deliveries(replicas, engine, job.name)
        assert (await delivery.tried(1)).state == DELIVERED
        [(_, headers, body)] = receiver.requests
        when = datetime.fromtimestamp(int(headers[TIMESTAMP]), UTC)
        signed = signed_headers(signing_key(SECRET), f"msg_{job.invocation_id}", when, body)
        assert headers[SIGNATURE] == signed[SIGNATURE]
        event = orjson.loads(body)
        assert (event["type"], event["data"]) == (
            "invocation.ended",
            {"invocation": job.name, "state": "succeeded"},
        )
        # A receiver that fails: eight tries, then none until it is asked for.
        receiver.reply = BROKEN
        job = await start(replicas, url)
        delivery = Deliveries(replicas, engine, job.name)
        for tries in range(1, 9):
            tried = await delivery.tried(tries)
            assert (tried.detail, tried.tries) == ("http_503", tries)
            await delivery.make_due()
        given_up = await delivery.get()
        assert (given_up.state, given_up.error.code, len(receiver.requests)) == (FAILED, "E3704", 9)
        assert await delivery.get(**MALLORY) is None
        assert await refusal(delivery.redeliver(**MALLORY)) is Reason.INVOCATION_NOT_FOUND
        receiver.reply = OK
        assert (await delivery.redeliver()).state == PENDING
        assert (await delivery.tried(1)).state == DELIVERED
        assert {headers["webhook-id"] for _, headers, _ in receiver.requests[1:]} == {f"msg_{job.invocation_id}"}
        # A redirect is not followed, also not to where the first request could go.
        location = f"location: http://127.0.0.1:{private.port}/\r\n".encode()
        receiver.reply = raw(b"HTTP/1.1 307 Elsewhere\r\n" + location + b"content-length: 0\r\n\r\n")
        job = await start(replicas, url)
        assert (await Deliveries(replicas, engine, job.name).tried(1)).detail == "http_307"
        receiver.reply = raw(b"garbage\r\n\r\n")
        job = await start(replicas, url)
        assert (await Deliveries(replicas, engine, job.name).tried(1)).detail == "unreachable"
        job = await start(replicas, "https://name-that-does-not-exist.invalid/hook")
        assert (await Deliveries(replicas, engine, job.name).tried(1)).detail == "unresolved"
        # A name that leads to this machine.
        job = await start(replicas, f"https://localhost:{private.port}/hook")
        assert (await Deliveries(replicas, engine, job.name).tried(1)).detail == "address_not_public"
        assert private.connections == 0
        # All of them, page by page.
        seen: list[str] = []
        token = ""
        while True:
            request = pb.ListCallbackDeliveriesRequest(page_size=2, page_token=token)
            page = await replicas.ask(0, "ListCallbackDeliveries", request)
            seen += [each.name for each in page.deliveries]
            if not (token := page.next_page_token):
                break
        assert len(seen) == len(set(seen)) == 6
        # Nothing readable is stored of where and how it is sent.
        async with engine.connect() as connection:
            rows = (await connection.execute(text("select callback from callback_deliveries"))).scalars().all()
        assert rows
        assert not any(b"127.0.0.1" in row or SECRET.encode() in row for row in rows)


async def test_callbacks_that_could_never_be_delivered_are_refused(replicas: Replicas) -> None:
    for url, secret in [
        ("http://example.com/hook", SECRET),
        ("https://10.0.0.1/hook", SECRET),
        ("https://169.254.169.254/latest", SECRET),
        ("https://[::1]/hook", SECRET),
        ("https://user:word@example.com/", SECRET),
        ("https://example.com/hook", "whsec_c2hvcnQ="),
        ("https://example.com/hook", "whsec_" + "A" * 33),
        ("https://example.com/hook", ""),
    ]:
        assert await refusal(start(replicas, url, secret)) is Reason.INVALID_REQUEST
