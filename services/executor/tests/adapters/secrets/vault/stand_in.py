"""A strict stand-in for Vault: logins, tokens that end, renewals, and a KV engine of version 2, over HTTP."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOGIN_SECONDS, LONGEST_SECONDS = 60, 100


@dataclass
class StandIn:
    """What the server knows. Its time is a number that tests set."""

    url: str = ""
    now: float = 0.0
    credentials: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """By mount: the names of the fields, and the role and the credential that it takes."""
    content: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """By path; None for a deleted version."""
    tokens: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Each token with its start and its end."""
    requests: list[str] = field(default_factory=list)
    redirect_to: str = ""

    def put(self, path: str, content: dict[str, Any] | None) -> None:
        """Write a version of a secret."""
        self.content[path] = content

    def revoke_all(self) -> None:
        """End every token."""
        self.tokens.clear()


class _Handler(BaseHTTPRequestHandler):
    state: StandIn

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _answer(self, method: str) -> None:
        state, body = self.state, self._body()
        state.requests.append(f"{method} {self.path}")
        if state.redirect_to:
            self.send_response(307)
            self.send_header("location", state.redirect_to)
            self.end_headers()
            return None
        path = self.path.removeprefix("/v1/")
        if method in ("POST", "PUT") and path.startswith("auth/") and path.endswith("/login"):
            return self._log_in(path.removeprefix("auth/").removesuffix("/login"), body)
        token = self.headers.get("x-vault-token", "")
        _, ends = state.tokens.get(token, (0.0, -1.0))
        if state.now >= ends:
            return self._send(403, {"errors": ["permission denied"]})
        if path == "auth/token/renew-self" and method in ("POST", "PUT"):
            return self._renew(token)
        if path == "auth/token/lookup-self" and method == "GET":
            return self._send(200, {"data": {"ttl": round(ends - state.now)}})
        if method == "GET" and path.startswith("secret/data/"):
            return self._read(path.removeprefix("secret/data/").partition("?")[0])
        return self._send(404, {"errors": []})

    def _log_in(self, mount: str, body: dict[str, Any]) -> None:
        fields, role, credential = self.state.credentials.get(mount, ("", "", ""))
        names = fields.split()
        if not names or [body.get(name) for name in names] != [role, credential]:
            return self._send(400, {"errors": ["invalid role or credential"]})
        token = f"hvs.{secrets.token_hex(12)}"
        self.state.tokens[token] = (self.state.now, self.state.now + LOGIN_SECONDS)
        return self._send(200, {"auth": {"client_token": token, "lease_duration": LOGIN_SECONDS, "renewable": True}})

    def _renew(self, token: str) -> None:
        started, _ = self.state.tokens[token]
        ends = min(self.state.now + LOGIN_SECONDS, started + LONGEST_SECONDS)
        self.state.tokens[token] = (started, ends)
        self._send(200, {"auth": {"client_token": token, "lease_duration": ends - self.state.now, "renewable": True}})

    def _read(self, path: str) -> None:
        if path not in self.state.content:
            return self._send(404, {"errors": []})
        content = self.state.content[path]
        metadata = {"version": 1, "deletion_time": "" if content is not None else "2026-01-01T00:00:00Z"}
        return self._send(200 if content is not None else 404, {"data": {"data": content, "metadata": metadata}})

    def _body(self) -> dict[str, Any]:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        return dict(json.loads(content)) if content else {}

    def _send(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def running_stand_in() -> Iterator[StandIn]:
    """Serve on a free port."""
    state = StandIn()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield state
        server.shutdown()
