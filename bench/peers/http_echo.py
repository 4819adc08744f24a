"""The echo as the smallest HTTP service there is: what a gateway that runs no tools itself passes calls on to. Runs
in our own environment."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
import uvicorn

Message = MutableMapping[str, Any]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answer with the text."""
    body, more = b"", True
    while more:
        piece = await receive()
        body, more = body + piece.get("body", b""), piece.get("more_body", False)
    answer = orjson.dumps({"text": orjson.loads(body)["text"]})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", lifespan="off", access_log=False, log_level="error")
