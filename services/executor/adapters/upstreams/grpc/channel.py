"""Opens gRPC channels to checked addresses only: no proxies of the environment, and no retries of the library."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
from toolmesh.registry.v1 import upstream_pb2

from libs.common.egress.public_addresses import PublicAddresses
from services.executor.adapters.upstreams.checked_addresses import Resolve, checked_addresses
from services.executor.adapters.upstreams.mcp.transport import ServerLostError

MAX_SENT_BYTES = 4 * 1024 * 1024
_MAX_PEM_BYTES = 64 * 1024
_CONNECT_SECONDS = 10.0


async def open_channel(
    endpoint: upstream_pb2.GrpcEndpoint, resolve: Resolve, allowed: PublicAddresses, max_bytes: int
) -> grpc.aio.Channel:
    """Return a channel that is connected. Raises ServerLostError."""
    host, _, port = endpoint.address.rpartition(":")
    name = host.strip("[]")
    addresses = await checked_addresses(name, resolve, allowed, plaintext=endpoint.plaintext)
    # One target has addresses of one family.
    if older := [address for address in addresses if ":" not in address]:
        target = "ipv4:" + ",".join(f"{address}:{port}" for address in older)
    else:
        target = "ipv6:" + ",".join(f"[{address}]:{port}" for address in addresses)
    options = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        # A server that is back is connected soon; the default is up to 2 min.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.max_send_message_length", MAX_SENT_BYTES),
        ("grpc.default_authority", endpoint.address),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if endpoint.plaintext:
        channel = grpc.aio.insecure_channel(target, options)
    else:
        credentials = await asyncio.to_thread(_credentials, endpoint)
        options.append(("grpc.ssl_target_name_override", name))
        channel = grpc.aio.secure_channel(target, credentials, options)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await channel.channel_ready()
    except BaseException as error:
        await channel.close()
        if isinstance(error, TimeoutError):
            raise ServerLostError("the server cannot be reached, or its certificate is not trusted") from None
        raise
    return channel


def _credentials(endpoint: upstream_pb2.GrpcEndpoint) -> grpc.ChannelCredentials:
    """Read the files of TLS. Blocking. Raises ServerLostError."""
    authority = _read(endpoint.ca_file) if endpoint.ca_file else None
    own = _read(endpoint.certificate_file) if endpoint.certificate_file else None
    return grpc.ssl_channel_credentials(authority, private_key=own, certificate_chain=own)


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_PEM_BYTES)
    except OSError:
        raise ServerLostError("a certificate cannot be read on the executor's machine") from None
