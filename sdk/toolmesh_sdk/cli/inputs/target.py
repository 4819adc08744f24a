"""Selects the mesh that a command talks to, and the token it uses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolmesh_sdk._wire.retry import COMMAND_LINE
from toolmesh_sdk._wire.trace import SAMPLED, new_traceparent
from toolmesh_sdk.cli.failures import no_mesh_error
from toolmesh_sdk.cli.inputs.contexts import Context, read_contexts
from toolmesh_sdk.cli.inputs.login_key import proof_key_for
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk._wire.transport import Token
    from toolmesh_sdk.client import Client

DEFAULT_STATE = "~/.local/state/toolmesh"
LOCAL_USER = "did:web:toolmesh.local:users:local"
LOCAL_SCOPES = ("tools:call", "tools:read", "tools:logs", "audit:read")
# The holder of the operator's certificate of the local mesh may approve there, as another person than the local user.
LOCAL_APPROVER = "did:web:toolmesh.local:users:approver"
APPROVER_SCOPES, APPROVER_GROUPS = ("approvals:read", "approvals:decide"), ("approvers",)
LOCAL_TOKEN_SECONDS = 300
# A watch lasts longer than one call.
LOCAL_APPROVER_SECONDS = 3600
START = "Start one with `toolmesh up`, or name another with --url or --context."
_PLAINTEXT = ("http://", "grpc://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The connection options of a command; without a URL the local mesh is the target."""

    url: str = ""
    token: str | None = None
    state: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    context: str = ""
    services: dict[str, str] = field(default_factory=dict)
    """Addresses of services for the holder of `cert`, from the context; else the URL is the service's."""
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

    def is_local(self) -> bool:
        """Return whether the target is the local mesh, also if its URL is written out."""
        if self.cert is not None:
            return False
        runtime = self.read_runtime() if self.url else None
        return not self.url or (runtime is not None and self.url.rpartition("://")[2] in _addresses(runtime))

    def service_url(self, service: str) -> str:
        """Return the address of a service for the holder of `cert`."""
        pattern = self.services.get(service) or self.services.get("*") or self.url
        if not pattern:
            advice = f"add --url https://HOST:PORT of {service}, or a context with --service {service}=HOST:PORT"
            raise typer.BadParameter(f"the address of {service} is unknown; {advice}", param_hint="--cert")
        return pattern.replace("{service}", service)


def select_mesh(target: Target) -> Target:
    """Return the target with the values of its context.

    The order is --url, --context or TOOLMESH_CONTEXT, TOOLMESH_URL, --state or TOOLMESH_STATE, the context in use, the
    local mesh. A token of the environment is never sent to the mesh of a context.
    """
    url, token = _typed(target.url, "TOOLMESH_URL"), _typed(target.token, "TOOLMESH_TOKEN")
    if target.context and url:
        raise typer.BadParameter("use --url or --context, not both", param_hint="--url")
    if not target.context and (target.url or target.state is not None):
        return _as_local_user(target)
    contexts = read_contexts()
    context = contexts.get(target.context or contexts.current)
    if context is None:
        return _as_local_user(replace(target, url="") if target.context else target)
    return replace(
        target,
        url=context.url,
        token=token if token is not None else _read_token_file(context),
        ca=target.ca or _path(context.ca),
        cert=target.cert or _path(context.cert),
        cert_key=target.cert_key or _path(context.key),
        services=context.services,
    )


def _typed(value: str | None, variable: str) -> str | None:
    """Return a value of the command line; None for one of the environment."""
    return None if value is not None and value == os.environ.get(variable) else value


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _read_token_file(context: Context) -> str | None:
    if not context.token_file:
        return None
    try:
        return Path(context.token_file).read_text().strip()
    except OSError as error:
        raise typer.BadParameter(f"{context.token_file}: {error.strerror}", param_hint="--context") from None


def _as_local_user(target: Target) -> Target:
    """Drop the token that `toolmesh env` exports: it is the local user's, and a command mints a fresh one.

    Otherwise it would end after its hours, and take the operator's certificate from the commands that need it. Any
    other token limits a command to its authority.
    """
    try:
        own = (target.folder / "token").read_text().strip()
    except OSError:
        return target
    return replace(target, token=None) if target.token == own and target.is_local() else target


def open_client(target: Target, key_secret: str = "") -> Client:
    """Connect through the edge: to the URL if there is one, else to the local mesh."""
    runtime = None if target.url else target.require_runtime()
    address = target.url or str((runtime or {})["grpc"]["address"])
    token: Token = target.token
    if token is None:
        own = _local_token_for(target)
        token = LocalTokens(target, own).current if own else ""
    return _client(address, _tls(target), token, target.timeout, key_secret)


def open_approver(target: Target) -> Client:
    """Connect through the edge as a person who decides tickets: with the token, else as the local mesh's approver."""
    runtime = target.read_runtime() if target.token is None and target.is_local() else None
    if runtime is None:
        return open_client(target)
    first = mint_approver_token(runtime)
    return open_client(replace(target, token=first))


def mint_approver_token(runtime: dict[str, Any]) -> str:
    """Mint a token for the approver of the local mesh."""
    return _mint(
        runtime,
        sub=LOCAL_APPROVER,
        tools=["*"],
        scopes=APPROVER_SCOPES,
        groups=APPROVER_GROUPS,
        ttl_seconds=LOCAL_APPROVER_SECONDS,
    )


def edge_access(target: Target) -> tuple[str, Callable[[], str]]:
    """Return the HTTP address of the edge, and a function that returns a valid token."""
    address = target.url or str(target.require_runtime()["gateway"]["url"])
    if not address.startswith(("http://", "https://")):
        raise typer.BadParameter("MCP is served over HTTP: name an http:// or https:// URL", param_hint="--url")
    if target.token is not None:
        token = target.token
        return address, lambda: token
    own = _local_token_for(target)
    return address, LocalTokens(target, own).current if own else lambda: ""


def open_direct(target: Target, key_secret: str = "") -> Client:
    """Connect directly to the executor, with --cert, else with the certificate of the local orchestrator."""
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk.admin import service_address

    if target.cert is not None:
        url, certificates = target.service_url("executor"), client_tls(target)
        return _client(url, certificates, target.token or "", target.timeout, key_secret)
    runtime = target.require_runtime()
    identity = _runtime_entry(runtime, "orchestrator")
    tls = Tls(_runtime_entry(runtime, "ca"), identity["cert"], identity["key"], server_name="executor")
    token = mint_local_token(runtime) if target.token is None else target.token
    return _client(service_address(runtime, "executor"), tls, token, target.timeout, key_secret)


def mint_local_token(runtime: dict[str, Any]) -> str:
    """Mint a short-lived token for the user of this machine."""
    return _mint(runtime, sub=LOCAL_USER, tools=["*"], scopes=LOCAL_SCOPES, ttl_seconds=LOCAL_TOKEN_SECONDS)


def _mint(runtime: dict[str, Any], **claims: Any) -> str:
    from toolmesh_sdk.admin import mint_token

    try:
        return mint_token(runtime, **claims)
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
    runtime = target.read_runtime() if target.is_local() else None
    return "" if runtime is None else mint_local_token(runtime)


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
            # A token of `toolmesh token mint --dpop` or `exchange --dpop`; those of the local user are bearers.
            proof_key=proof_key_for(token) if isinstance(token, str) and token else None,
            key_secret=key_secret,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
    except OSError as error:
        raise typer.BadParameter(f"a certificate cannot be read: {error}", param_hint="--state") from None


def _tls(target: Target) -> Tls | None:
    """Return the TLS settings for the URL. A context's certificate is for its services, not for the edge."""
    if target.services:
        return None if target.url.startswith(_PLAINTEXT) else authority_tls(target)
    return client_tls(target) if target.cert is not None else authority_tls(target)


def client_tls(target: Target) -> Tls:
    """Return the TLS settings of --cert, --key and --ca; refuse files that do not fit together."""
    import ssl

    from toolmesh_sdk._wire.connection import Tls

    cert = target.cert.expanduser() if target.cert else Path()
    key = target.cert_key.expanduser() if target.cert_key else cert
    try:
        # gRPC would only fail at the first call, with a message about an unreachable server.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key)
    except OSError as error:
        raise typer.BadParameter(
            f"{cert} and {key} are no certificate and its key: {error}", param_hint="--cert"
        ) from None
    authority = authority_tls(target)
    return Tls(ca=authority.ca if authority else None, cert=cert, key=key)


def authority_tls(target: Target) -> Tls | None:
    """Return the TLS settings of --ca; refuse a file without certificates."""
    if target.ca is None:
        return None
    import ssl

    from toolmesh_sdk._wire.connection import Tls

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(target.ca.expanduser())
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
