"""Parses targets and opens gRPC channels, with TLS if needed."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import grpc
import grpc.aio

Pem: TypeAlias = Path | str | bytes
_PLAIN, _SECURE = {"http": 80, "grpc": 80}, {"https": 443, "grpcs": 443}
_OPTIONS: Sequence[tuple[str, Any]] = (
    # The mesh limits message sizes; the client does not limit responses.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Reconnect to a restarted mesh within seconds; gRPC's default is up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates, each as the path of a PEM file or as its bytes.

    `ca` issues the server's certificate; None uses the public authorities. `cert` and `key` are the client's own, for a
    service inside the mesh. `server_name` is the expected name of the server, if it is not the host of the target.
    """

    ca: Pem | None = None
    cert: Pem | None = None
    key: Pem | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files and return the gRPC credentials."""
        return grpc.ssl_channel_credentials(read_pem(self.ca), read_pem(self.key), read_pem(self.cert))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, and the TLS settings to reach it."""

    address: str
    tls: Tls | None

    def channel(self) -> grpc.Channel:
        """Open a channel for threads; it connects on the first call."""
        if self.tls is None:
            return grpc.insecure_channel(self.address, options=self.options())
        return grpc.secure_channel(self.address, self.tls.credentials(), options=self.options())

    def aio_channel(self, interceptors: Sequence[Any] = ()) -> grpc.aio.Channel:
        """Open a channel of the running event loop; it connects on the first call."""
        options, chain = self.options(), list(interceptors)
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, options=options, interceptors=chain)
        return grpc.aio.secure_channel(self.address, self.tls.credentials(), options=options, interceptors=chain)

    @property
    def origin(self) -> str:
        """The origin in proofs of possession."""
        authority = self.tls.server_name if self.tls and self.tls.server_name else self.address
        return f"{'http' if self.tls is None else 'https'}://{authority}"

    def options(self) -> list[tuple[str, Any]]:
        """Return the channel options."""
        options = list(_OPTIONS)
        if self.tls and self.tls.server_name:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        if _is_local(self.address):
            # gRPC would send even loopback traffic through the proxy of the environment.
            options.append(("grpc.enable_http_proxy", 0))
        return options


def parse_endpoint(target: str, tls: Tls | None = None) -> Endpoint:
    """Parse a target: `host:port`, or a URL with http, https, grpc or grpcs.

    Without a scheme, TLS is used if `tls` is given, and plaintext only to this machine: a typo never sends a token over
    a network in the clear. Raises ValueError for an ambiguous or invalid target.
    """
    scheme, separator, rest = target.partition("://")
    if not separator:
        if tls is None and not _is_local(target):
            raise ValueError(
                f"{target} is not on this machine: write https://{target}, or http://{target} for plaintext"
            )
        if not target.startswith("unix:") and not _has_port(target):
            # gRPC would wrap an invalid port number and send the token to another port.
            raise ValueError(f"{target} is not a target; write host:port with a port up to 65535")
        return Endpoint(target, tls)
    port = {**_PLAIN, **_SECURE}.get(scheme)
    parts = urlsplit(target)
    if port is None or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{target} is not a target; write host:port or a URL such as https://{rest.split('/')[0]}")
    if tls is not None and scheme in _PLAIN:
        raise ValueError(f"{scheme} is plaintext, but certificates are set; write https")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Endpoint(f"{host}:{parts.port or port}", (tls or Tls()) if scheme in _SECURE else None)


def _has_port(target: str) -> bool:
    try:
        return urlsplit(f"//{target}").port is not None
    except ValueError:
        return False


def _is_local(target: str) -> bool:
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_pem(pem: Pem | None) -> bytes | None:
    """Return the bytes of a PEM, read from its file if necessary."""
    return pem if pem is None or isinstance(pem, bytes) else Path(pem).expanduser().read_bytes()
