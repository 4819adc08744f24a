"""Web origins (RFC 6454): the scheme, host and port of a URL, in one spelling."""

from __future__ import annotations

from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Return `scheme://host:port` of an HTTP URL, in lower case and always with the port. Raises ValueError."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        raise ValueError("is not an http(s) URL with a host")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{host}:{parts.port or _DEFAULT_PORTS[scheme]}"


def without_default_port(origin: str) -> str:
    """Return an origin as people write it: without the port that its scheme implies."""
    scheme, _, _ = origin.partition(":")
    return origin.removesuffix(f":{_DEFAULT_PORTS[scheme]}")


def parse_origins(text: str) -> tuple[str, ...]:
    """Parse origins separated by commas: `https://mesh.example, http://127.0.0.1:8080`. Raises ValueError."""
    origins = []
    for part in filter(None, map(str.strip, text.split(","))):
        if urlsplit(part).path not in ("", "/") or "?" in part or "#" in part:
            raise ValueError("an origin has a scheme, a host and a port alone")
        origins.append(origin_of(part))
    return tuple(dict.fromkeys(origins))
