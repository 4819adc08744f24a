"""Fills in Envoy's template for a pod: upstreams by the names of their headless services."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from string import Template
from urllib.parse import urlsplit

from localmesh.deploy.layout import SERVICE_PORT, Namespaces
from localmesh.parts.envoy import LIFETIME_SLACK, UPSTREAMS, tracing_values
from localmesh.settings import AUDIENCE, ISSUER, TRUST_DOMAIN

# A replica that fails three times in a row is left out for five seconds; half of them always stay.
OUTLIERS = {
    "consecutive_gateway_failure": 3,
    "enforcing_consecutive_gateway_failure": 100,
    "interval": "1s",
    "base_ejection_time": "5s",
    "max_ejection_percent": 50,
    "successful_active_health_check_uneject_host": False,
}


@dataclass(frozen=True)
class EdgeSettings:
    """What differs between the edges of two clusters."""

    node_id: str
    namespaces: Namespaces = field(default_factory=Namespaces)
    trust_domain: str = TRUST_DOMAIN
    issuer: str = ISSUER
    audience: str = AUDIENCE
    max_token_lifetime: int = 86_400
    rate_per_second: int = 2000
    rate_burst: int = 4000
    allowed_origins: str = "https://toolmesh[.]invalid"
    trace_percent: str = "1"
    otlp_endpoint: str = ""


def render_envoy(template: str, settings: EdgeSettings) -> str:
    """Render the configuration. Raises KeyError for an unknown placeholder, ValueError for a wrong address."""
    values: dict[str, object] = {
        "node_id": settings.node_id,
        "edge_address": "0.0.0.0",  # noqa: S104  (the pod's own; a network policy decides which pods reach it)
        "http_port": 8080,
        "tls_port": 8443,
        "admin_socket": "/run/envoy/admin.sock",
        "ops_address": "0.0.0.0",  # noqa: S104
        "ops_port": 9901,
        "discovery": "STRICT_DNS",
        "trust_domain": settings.trust_domain,
        "issuer": settings.issuer,
        "audience": settings.audience,
        "max_lifetime": settings.max_token_lifetime + LIFETIME_SLACK,
        "ingress_cert": "/run/secrets/ingress/tls.crt",
        "ingress_key": "/run/secrets/ingress/tls.key",
        "edge_cert": "/run/secrets/tls/tls.crt",
        "edge_key": "/run/secrets/tls/tls.key",
        "mesh_ca": "/run/secrets/tls/ca.crt",
        "allowed_origins": settings.allowed_origins,
        "rate_per_second": settings.rate_per_second,
        "rate_burst": settings.rate_burst,
        "trace_percent": settings.trace_percent,
        "outlier_detection": json.dumps(OUTLIERS),
        **tracing_values(_collector(settings.otlp_endpoint)),
    }
    for name in UPSTREAMS:
        values[f"{name}_endpoints"] = json.dumps([_endpoint(settings.namespaces.host(name))])
    return Template(template).substitute(values)


def _endpoint(host: str) -> dict[str, object]:
    return {"endpoint": {"address": {"socket_address": {"address": host, "port_value": SERVICE_PORT}}}}


def _collector(endpoint: str) -> str | None:
    if endpoint and urlsplit(endpoint).port is None:
        raise ValueError("the collector's endpoint is http://host:port")
    return endpoint or None
