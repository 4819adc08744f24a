"""Envoys of the bench's own: one that does nothing but pass calls on, for the floors behind it, and the mesh's own
edge with one more process
behind a service."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from localmesh.wheels import envoy
from tests.harness.stores import free_port, wait_until

_TYPE = "type.googleapis.com/envoy"
_MANAGER = f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = f"{_TYPE}.extensions.filters.http.router.v3.Router"
_OPTIONS = f"{_TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions"
_TLS = f"{_TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


@dataclass(frozen=True)
class Upstream:
    """A process behind a listener: who it is by its certificate, and whether it speaks HTTP/2."""

    port: int
    name: str
    http2: bool


@contextmanager
def passing(folder: Path, pki: Path, upstreams: Mapping[str, Upstream]) -> Iterator[tuple[dict[str, int], int]]:
    """Run an Envoy with a listener for each upstream; yield the port of each, and the process."""
    ports, admin = {name: free_port() for name in upstreams}, free_port()
    document = {
        "admin": {"address": _address(admin)},
        "static_resources": {
            "listeners": [_listener(name, ports[name]) for name in upstreams],
            "clusters": [_cluster(name, upstream, pki) for name, upstream in upstreams.items()],
        },
    }
    file = folder / "envoy-floor.json"
    file.write_text(json.dumps(document))
    with _running(file, admin) as pid:
        yield ports, pid


@contextmanager
def edge_with(
    rendered: Path, folder: Path, ports: Mapping[str, int], more: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Run the mesh's own edge once more, on ports of its own, with another process beside each of these upstreams;
    yield its port and process.

    `more` says, for the port of a service, the port of the process that shares its work from now on.
    """
    text, own = rendered.read_text(), {name: free_port() for name in ("edge", "edge-tls", "envoy")}
    for name, port in own.items():
        text = re.sub(rf"port_value: {ports[name]}\b", f"port_value: {port}", text)
    for port, beside in more.items():
        one = f'{{endpoint: {{address: {{socket_address: {{address: "127.0.0.1", port_value: {port}}}}}}}}}'
        assert one in text, "the edge's configuration names its upstreams in another way now"
        text = text.replace(one, f"{one}, {one.replace(str(port), str(beside))}")
    file = folder / "envoy-replicas.yaml"
    file.write_text(text)
    with _running(file, own["envoy"]) as pid:
        yield own["edge"], pid


@contextmanager
def _running(file: Path, admin: int) -> Iterator[int]:
    # As many threads as the mesh's own edge has.
    command = [str(envoy()), "-c", str(file), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or _ready(admin), "Envoy's start", 60)
        assert process.poll() is None, f"Envoy refused {file.name}"
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _ready(admin: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{admin}/ready").status_code == 200
    except httpx.TransportError:
        return False


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _listener(name: str, port: int) -> dict[str, Any]:
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": name, "timeout": "30s"}}]
    manager = {
        "@type": _MANAGER,
        "stat_prefix": name,
        "codec_type": "AUTO",
        "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
    }
    return {
        "name": name,
        "address": _address(port),
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
    }


def _cluster(name: str, upstream: Upstream, pki: Path) -> dict[str, Any]:
    spoken: dict[str, Any] = {"http2_protocol_options": {}} if upstream.http2 else {"http_protocol_options": {}}
    context = {
        "@type": _TLS,
        "sni": upstream.name,
        "common_tls_context": {
            "alpn_protocols": ["h2" if upstream.http2 else "http/1.1"],
            "tls_certificates": [
                {
                    "certificate_chain": {"filename": str(pki / "edge.pem")},
                    "private_key": {"filename": str(pki / "edge.key")},
                }
            ],
            "validation_context": {"trusted_ca": {"filename": str(pki / "ca.pem")}},
        },
    }
    endpoint = {"endpoint": {"address": _address(upstream.port)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _OPTIONS,
                "explicit_http_config": spoken,
            }
        },
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
