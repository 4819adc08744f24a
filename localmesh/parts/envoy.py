"""Runs Envoy with the same configuration template as a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from localmesh.ports import replica_names
from localmesh.process.child import Launch
from localmesh.process.part import Part
from localmesh.process.probes import http_answers, http_request
from localmesh.settings import AUDIENCE, ISSUER, LOOPBACK, ROOT, TRUST_DOMAIN, Settings, inherited_environment
from localmesh.state.files import write_private
from localmesh.state.pki import Pki

TEMPLATE = ROOT / "deploy" / "envoy" / "envoy.yaml"
UPSTREAMS = ("gateway", "executor", "registry", "authz", "approval", "audit")
# Pages of a developer's own machine may call the edge; any other web page may not.
LOCAL_ORIGINS = r"https?://(localhost|127[.]0[.]0[.]1)(:[0-9]+)?"
DRAIN_SECONDS = 2.0
# How long a token may be is decided by authz; the edge only keeps out what it can never have made, whatever their
# clocks say.
LIFETIME_SLACK = 3600
# What the kernel allows, with room for the terminator.
_LONGEST_SOCKET_PATH = 100
_ACTIVE = re.compile(rb"http\.ingress\.downstream_rq_active: (\d+)")


@dataclass(frozen=True)
class EnvoyPlan:
    """The inputs of Envoy's configuration."""

    program: Path
    folder: Path
    ports: Mapping[str, int]
    pki: Pki
    settings: Settings

    @property
    def configuration(self) -> Path:
        return self.folder / "envoy.yaml"

    @property
    def admin_socket(self) -> Path:
        """The socket of the admin interface, in a folder that no other user can enter."""
        path = self.folder / "admin.sock"
        if len(str(path)) <= _LONGEST_SOCKET_PATH:
            return path
        name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"toolmesh-{os.getuid()}-{name}" / "admin.sock"


def envoy_part(plan: EnvoyPlan, after: tuple[str, ...]) -> Part:
    """Returns the part. It is ready once it has the keys to verify tokens with and has checked every upstream."""
    ops, admin = plan.ports["envoy"], plan.admin_socket

    async def prepare() -> None:
        prepare_socket_folder(admin)
        write_private(plan.configuration, render(plan).encode())

    async def probe() -> bool:
        return await http_answers(ops, "/ready")

    async def quiesce() -> None:
        # SIGTERM alone would cut the calls under way.
        with contextlib.suppress(OSError):
            await begin_drain(admin)
            await wait_until_idle(admin, DRAIN_SECONDS)

    return Part(
        name="envoy",
        launch=Launch(_command(plan), Path("/"), {**inherited_environment(), "TZ": "UTC"}),
        probe=probe,
        address=f"{LOOPBACK}:{plan.ports['edge']}",
        ops=f"{LOOPBACK}:{ops}",
        after=after,
        prepare=prepare,
        quiesce=quiesce,
    )


def prepare_socket_folder(socket: Path) -> None:
    """Makes the folder of the socket and removes what an earlier run left. Raises OSError if it is not ours alone."""
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = socket.parent.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{socket.parent} belongs to another user")
    socket.parent.chmod(0o700)
    socket.unlink(missing_ok=True)


def render(plan: EnvoyPlan) -> str:
    """Renders the template for one machine. Raises KeyError for an unknown placeholder."""
    edge = plan.pki.of("edge")
    settings = plan.settings
    values: dict[str, object] = {
        "node_id": "edge-0",
        "edge_address": LOOPBACK,
        "http_port": plan.ports["edge"],
        "tls_port": plan.ports["edge-tls"],
        "admin_socket": plan.admin_socket,
        "ops_address": LOOPBACK,
        "ops_port": plan.ports["envoy"],
        "discovery": "STATIC",
        "trust_domain": TRUST_DOMAIN,
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "max_lifetime": settings.max_token_lifetime + LIFETIME_SLACK,
        "ingress_cert": edge.cert,
        "ingress_key": edge.key,
        "edge_cert": edge.cert,
        "edge_key": edge.key,
        "mesh_ca": plan.pki.ca,
        "allowed_origins": LOCAL_ORIGINS,
        "rate_per_second": settings.rate_per_second,
        "rate_burst": settings.rate_burst,
        "trace_percent": f"{settings.trace_sample_ratio * 100:g}",
        "outlier_detection": "null",  # each upstream is one process: to eject it would be to have none
        **tracing_values(settings.otlp_endpoint),
    }
    for name in UPSTREAMS:
        values[f"{name}_endpoints"] = json.dumps(
            [_endpoint(plan.ports[part]) for part in replica_names(plan.ports, name)]
        )
    return Template(TEMPLATE.read_text()).substitute(values)


def _endpoint(port: int) -> dict[str, object]:
    return {"endpoint": {"address": {"socket_address": {"address": LOOPBACK, "port_value": port}}}}


def tracing_values(endpoint: str | None) -> dict[str, object]:
    """Return the values of Envoy's tracer: with a collector its spans, without one the Lua filter begins traces."""
    if endpoint is None:
        return {
            "trace_provider": "null",
            "edge_spans": "false",
            "trace_id": "%CEL(request.headers['traceparent'].substring(3, 35))%",
            "otlp_host": LOOPBACK,
            "otlp_port": 4317,
        }
    host, _, port = re.sub(r"^https?://", "", endpoint).rstrip("/").rpartition(":")
    provider = {
        "name": "envoy.tracers.opentelemetry",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
            "service_name": "edge",
            "grpc_service": {"envoy_grpc": {"cluster_name": "otlp"}, "timeout": "1s"},
        },
    }
    return {
        "trace_provider": json.dumps(provider),
        "edge_spans": "true",
        "trace_id": "%TRACE_ID%",
        "otlp_host": host,
        "otlp_port": int(port),
    }


def _command(plan: EnvoyPlan) -> tuple[str, ...]:
    return (
        str(plan.program),
        *("-c", str(plan.configuration)),
        # One thread carries far more than the mesh behind it, and is cheaper than two that take turns.
        *("--concurrency", "1"),
        "--disable-hot-restart",
        *("--drain-time-s", f"{DRAIN_SECONDS:g}"),
        *("--log-level", "warning"),
        *("--file-flush-interval-msec", "1000"),
    )


async def begin_drain(admin: Path) -> None:
    """Asks Envoy to end its connections with their next response. Raises OSError if it does not answer."""
    await http_request(admin, "POST", "/drain_listeners?graceful")


async def wait_until_idle(admin: Path, seconds: float) -> None:
    """Returns when no call is under way, or after this time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                _, stats = await http_request(admin, "GET", "/stats?filter=http.ingress.downstream_rq_active")
                active = _ACTIVE.search(stats)
                if active is None or active[1] == b"0":
                    return
                await asyncio.sleep(0.05)
