"""Which mesh a command talks to, and with which token."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolmesh_sdk._wire.trace import SAMPLED, new_traceparent
from toolmesh_sdk.cli.failures import no_mesh
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk._wire.transport import Token
    from toolmesh_sdk.client import Client

DEFAULT_STATE = "~/.local/state/toolmesh"
LOCAL_USER = "did:web:toolmesh.local:users:local"
LOCAL_SCOPES = ("tools:call", "tools:read", "audit:read")
LOCAL_TOKEN_SECONDS = 300
START = "Start one with `toolmesh up`, or name another with --url."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to connect, as the person said it; what was left out is found out."""

    url: str = ""
    token: str | None = None
    state: Path | None = None
    ca: Path | None = None

    @property
    def folder(self) -> Path:
        """The state folder of the local mesh."""
        return (self.state or Path(DEFAULT_STATE)).expanduser().absolute()

    def runtime(self) -> dict[str, Any] | None:
        """Return what the local mesh wrote about itself; None when there is none or its runner is gone."""
        try:
            document = json.loads((self.folder / "runtime.json").read_bytes())
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) and _alive(document.get("runner_pid")) else None

    def running(self) -> dict[str, Any]:
        """Return the same, or fail with the advice to start a mesh."""
        runtime = self.runtime()
        if runtime is None:
            raise no_mesh(f"No mesh is running here (looked in {self.folder}).", START)
        return runtime


def open_client(place: Place, timeout: float, key_secret: str = "") -> Client:
    """Connect through the edge: to the URL if one was given, else to the local mesh."""
    runtime = None if place.url else place.running()
    target = place.url or str((runtime or {})["grpc"]["address"])
    token: Token = place.token
    if token is None:
        own = _own_token(place)
        token = LocalTokens(place, own) if own else ""
    return _client(target, _tls(place), token, timeout, key_secret)


def open_direct(place: Place, timeout: float, key_secret: str = "") -> Client:
    """Connect straight to the local mesh's executor, as the mesh's own orchestrator does."""
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk.admin import service_address

    runtime = place.running()
    identity = _said(runtime, "orchestrator")
    tls = Tls(_said(runtime, "ca"), identity["cert"], identity["key"], server_name="executor")
    token = local_token(runtime) if place.token is None else place.token
    return _client(service_address(runtime, "executor"), tls, token, timeout, key_secret)


def local_token(runtime: dict[str, Any]) -> str:
    """Mint a short-lived token for the person at this machine."""
    from toolmesh_sdk.admin import mint_token

    try:
        return mint_token(runtime, sub=LOCAL_USER, tools=["*"], scopes=LOCAL_SCOPES, ttl_seconds=LOCAL_TOKEN_SECONDS)
    except (OSError, KeyError) as error:
        raise typer.BadParameter(
            f"no token was given, and the local mesh's operator certificate cannot be used ({error})",
            param_hint="--token",
        ) from None


class LocalTokens:
    """Tokens of the person at this machine, each used for half of its time: a command may last longer than one of them."""

    def __init__(self, place: Place, first: str) -> None:
        self._place, self._token, self._made = place, first, time.monotonic()

    def __call__(self) -> str:
        """Return the present one, or the next."""
        if time.monotonic() - self._made > LOCAL_TOKEN_SECONDS / 2:
            # Of a mesh that is gone for the moment, or starts, the old one is as good as any; the next call asks again.
            with suppress(ToolmeshError, typer.BadParameter):
                self._token, self._made = _own_token(self._place) or self._token, time.monotonic()
        return self._token


def _own_token(place: Place) -> str:
    # A token of the local mesh is shown to the local mesh only, never to an address that merely was typed.
    runtime = place.runtime()
    if runtime is None or (place.url and place.url.rpartition("://")[2] not in _addresses(runtime)):
        return ""
    return local_token(runtime)


def _addresses(runtime: dict[str, Any]) -> set[str]:
    gateway = runtime.get("gateway", {})
    urls = (gateway.get("url", ""), gateway.get("tls_url", ""), runtime["grpc"]["address"])
    return {url.rpartition("://")[2] for url in urls}


def _client(target: str, tls: Tls | None, token: Token, timeout: float, key_secret: str) -> Client:
    from toolmesh_sdk.client import Client

    # A person who looks at one call wants to find its spans.
    trace = partial(new_traceparent, SAMPLED)
    try:
        return Client(target, tls=tls, token=token, timeout=timeout, traceparent=trace, key_secret=key_secret)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
    except OSError as error:
        raise typer.BadParameter(f"a certificate cannot be read: {error}", param_hint="--state") from None


def _tls(place: Place) -> Tls | None:
    if place.ca is None:
        return None
    import ssl

    from toolmesh_sdk._wire.connection import Tls

    try:
        # gRPC would find out at the first call, and then say that nobody can be reached.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(place.ca)
    except OSError as error:
        raise typer.BadParameter(
            f"{place.ca} holds no certificate that can be read: {error}", param_hint="--ca"
        ) from None
    return Tls(ca=place.ca)


def _said(runtime: dict[str, Any], name: str) -> Any:
    if name not in runtime:
        raise no_mesh(f"The local mesh does not say its {name}.", START)
    return runtime[name]


def _alive(pid: Any) -> bool:
    if not isinstance(pid, int):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
