"""A strict authorization server: client credentials and token exchange, with what it was asked."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@dataclass
class AuthorizationServer:
    """What the server knows, and what it was asked."""

    url: str = ""
    secret: str = "client secret/1"
    lifetime: Any = 60
    answer: tuple[int, bytes] | None = None
    """Replaces its answers."""
    location: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    granted: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    state: AuthorizationServer

    def do_POST(self) -> None:
        state = self.state
        content = self.rfile.read(int(self.headers["content-length"])).decode()
        form = {name: values[0] for name, values in parse_qs(content, strict_parsing=True).items()}
        client = (form.pop("client_id", ""), form.pop("client_secret", ""))
        kind, _, encoded = self.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            name, _, secret = base64.b64decode(encoded).decode().partition(":")
            client = (unquote_plus(name), unquote_plus(secret))
        state.asked.append({"by": kind or "body", **form})
        if state.answer is not None:
            return self._send(*state.answer)
        if client != ("mesh client", state.secret):
            return self._send(401, b'{"error": "invalid_client"}')
        if form["grant_type"] not in ("client_credentials", EXCHANGE):
            return self._send(400, b'{"error": "unsupported_grant_type"}')
        if form["grant_type"] == EXCHANGE and not form.get("subject_token"):
            return self._send(400, b'{"error": "invalid_request"}')
        token = f"token-{len(state.asked)}-for-{_subject(form.get('subject_token', 'client'))}"
        state.granted.append(token)
        document = {"access_token": token, "token_type": "Bearer", "expires_in": state.lifetime}
        return self._send(200, json.dumps(document).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        if self.state.location:
            self.send_header("location", self.state.location)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _subject(assertion: str) -> str:
    """Return the subject of a JSON Web Token, or the text itself."""
    parts = assertion.split(".")
    if len(parts) != 3:
        return assertion
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    return str(claims["sub"]).replace(":", "-")


@contextmanager
def running_server() -> Iterator[AuthorizationServer]:
    """Serve on a free port."""
    state = AuthorizationServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state})) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}/token"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield state
        server.shutdown()
