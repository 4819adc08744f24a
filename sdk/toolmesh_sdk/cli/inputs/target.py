"""Selects the mesh that a command talks to, and the token it uses."""

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

from toolmesh_sdk._wire.retry import COMMAND_LINE
from toolmesh_sdk._wire.trace import SAMPLED, new_traceparent
from toolmesh_sdk.cli.failures import no_mesh_error
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk._wire.transport import Token
    from toolmesh_sdk.client import Client

DEFAULT_STATE = "~/.local/state/toolmesh"
LOCAL_USER = "did:web:toolmesh.local:users:local"
LOCAL_SCOPES = ("tools:call", "tools:read", "tools:logs", "audit:read")
LOCAL_TOKEN_SECONDS = 300
START = "Start one with `toolmesh up`, or name another with --url."


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The connection options of a command; without a URL the local mesh is the target."""

    url: str = ""
    token: str | None = None
    state: Path | None = None
    ca: Path | None = None
    timeout: float = 30.0

    @property
    def folder(self) -> Path:
        """The state folder of the local mesh."""
        return (self.state or Path(DEFAULT_STATE)).expanduser().absolute()

    def read_runtime(self) -> dict[str, Any] | None:
        """Return the runtime document of the local mesh; None if there is none or its runner has ended."""
        try:
            document = json.loads((self.folder / "runtime.json").read_bytes())
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) and _is_alive(document.get("runner_pid")) else None

    def require_runtime(self) -> dict[str, Any]:
        """Return the runtime document, or raise with the advice to start a mesh."""
        runtime = self.read_runtime()
        if runtime is None:
            raise no_mesh_error(f"No mesh is running here (looked in {self.folder}).", START)
        return runtime


def open_client(target: Target, key_secret: str = "") -> Client:
    """Connect through the edge: to the URL if there is one, else to the local mesh."""
    runtime = None if target.url else target.require_runtime()
    address = target.url or str((runtime or {})["grpc"]["address"])
    token: Token = target.token
    if token is None:
        own = _local_token_for(target)
        token = LocalTokens(target, own).current if own else ""
    return _client(address, _tls(target), token, target.timeout, key_secret)


def open_direct(target: Target, key_secret: str = "") -> Client:
    """Connect directly to the local mesh's executor, with the certificate of the orchestrator."""
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk.admin import service_address

    runtime = target.require_runtime()
    identity = _runtime_entry(runtime, "orchestrator")
    tls = Tls(_runtime_entry(runtime, "ca"), identity["cert"], identity["key"], server_name="executor")
    token = mint_local_token(runtime) if target.token is None else target.token
    return _client(service_address(runtime, "executor"), tls, token, target.timeout, key_secret)


def mint_local_token(runtime: dict[str, Any]) -> str:
    """Mint a short-lived token for the user of this machine."""
    from toolmesh_sdk.admin import mint_token

    try:
        return mint_token(runtime, sub=LOCAL_USER, tools=["*"], scopes=LOCAL_SCOPES, ttl_seconds=LOCAL_TOKEN_SECONDS)
    except (OSError, KeyError) as error:
        raise typer.BadParameter(
            f"there is no token, and the local mesh's operator certificate cannot be used ({error})",
            param_hint="--token",
        ) from None


class LocalTokens:
    """Tokens for the local user, renewed after half of their lifetime: a command may outlive one of them."""

    def __init__(self, target: Target, first: str) -> None:
        self._target, self._token, self._minted_at = target, first, time.monotonic()

    def current(self) -> str:
        """Return a token that is valid, renewed if necessary."""
        if time.monotonic() - self._minted_at > LOCAL_TOKEN_SECONDS / 2:
            # If the mesh restarts, the old token is used for now; the next call tries again.
            with suppress(ToolmeshError, typer.BadParameter):
                self._token, self._minted_at = _local_token_for(self._target) or self._token, time.monotonic()
        return self._token


def _local_token_for(target: Target) -> str:
    # A token of the local mesh is sent to the local mesh only, never to another address.
    runtime = target.read_runtime()
    if runtime is None or (target.url and target.url.rpartition("://")[2] not in _addresses(runtime)):
        return ""
    return mint_local_token(runtime)


def _addresses(runtime: dict[str, Any]) -> set[str]:
    gateway = runtime.get("gateway", {})
    urls = (gateway.get("url", ""), gateway.get("tls_url", ""), runtime["grpc"]["address"])
    return {url.rpartition("://")[2] for url in urls}


def _client(address: str, tls: Tls | None, token: Token, timeout: float, key_secret: str) -> Client:
    from toolmesh_sdk.client import Client

    # Calls of a person are sampled, so that their spans can be found.
    trace = partial(new_traceparent, SAMPLED)
    try:
        return Client(
            address,
            tls=tls,
            token=token,
            timeout=timeout,
            retry=COMMAND_LINE,
            traceparent=trace,
            key_secret=key_secret,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
    except OSError as error:
        raise typer.BadParameter(f"a certificate cannot be read: {error}", param_hint="--state") from None


def _tls(target: Target) -> Tls | None:
    if target.ca is None:
        return None
    import ssl

    from toolmesh_sdk._wire.connection import Tls

    try:
        # gRPC would only fail at the first call, with a message about an unreachable server.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(target.ca)
    except OSError as error:
        raise typer.BadParameter(f"{target.ca} holds no readable certificate: {error}", param_hint="--ca") from None
    return Tls(ca=target.ca)


def _runtime_entry(runtime: dict[str, Any], name: str) -> Any:
    if name not in runtime:
        raise no_mesh_error(f"The runtime document of the local mesh has no {name}.", START)
    return runtime[name]


def _is_alive(pid: Any) -> bool:
    if not isinstance(pid, int):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
