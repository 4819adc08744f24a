"""Types of settings: which text a variable may hold, and how the documentation names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator, StringConstraints, WithJsonSchema

from libs.common.auth.origins import parse_origins
from libs.common.sealing import Seal, read_seal


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port to listen on or to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `host:port`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError("is not host:port")
    return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The address of a peer, or those of its replicas."""

    replicas: tuple[Address, ...]

    def __str__(self) -> str:
        addresses = ",".join(map(str, self.replicas))
        return addresses if len(self.replicas) == 1 else f"{_family(self.replicas[0].host)}:{addresses}"


def parse_peer(text: str) -> PeerAddress:
    """Parse `host:port`, or the IP addresses of several replicas with commas between them. Raises ValueError."""
    replicas = tuple(parse_address(part.strip()) for part in text.split(","))
    if len(replicas) > 1 and len({_family(replica.host) for replica in replicas}) > 1:
        raise ValueError("mixes IPv4 and IPv6 addresses")
    return PeerAddress(replicas)


def _family(host: str) -> str:
    try:
        return f"ipv{ip_address(host.strip('[]')).version}"
    except ValueError:
        raise ValueError("names several hosts; use IP addresses, or one DNS name of all replicas") from None


def file_with(content: str, read: Callable[[Path], object]) -> Callable[[Path], Path]:
    """Return a validator of a file: `read` must accept it. The problem never quotes the file, which may hold a key."""

    def validate(path: Path) -> Path:
        try:
            read(path)
        except Exception:
            raise ValueError(f"does not hold {content}") from None
        return path

    return validate


HostPort = Annotated[Address, PlainValidator(parse_address), WithJsonSchema({"type": "string", "format": "host:port"})]
Peer = Annotated[
    PeerAddress,
    PlainValidator(parse_peer),
    WithJsonSchema({"type": "string", "format": "host:port (or IP:port of each replica, separated by commas)"}),
]
Origins = Annotated[
    tuple[str, ...],
    PlainValidator(parse_origins),
    WithJsonSchema({"type": "string", "format": "origins (`https://host:port`, separated by commas)"}),
]
HttpUrl = Annotated[
    str, StringConstraints(pattern="^https?://"), WithJsonSchema({"type": "string", "format": "http(s) URL"})
]
HttpsUrl = Annotated[
    str, StringConstraints(pattern="^https://"), WithJsonSchema({"type": "string", "format": "https URL"})
]

# These URLs hold a password. A field without `repr` is a secret: it is masked, and can be read from a file.
PostgresUrl = Annotated[
    str,
    StringConstraints(pattern="^postgresql://"),
    WithJsonSchema({"type": "string", "format": "postgresql:// URL"}),
    Field(repr=False),
]
RedisUrl = Annotated[
    str,
    StringConstraints(pattern="^(rediss?|unix)://"),
    WithJsonSchema({"type": "string", "format": "redis:// URL"}),
    Field(repr=False),
]
SealingKeys = Annotated[Seal, PlainValidator(read_seal), WithJsonSchema({"type": "string", "format": "directory-path"})]
