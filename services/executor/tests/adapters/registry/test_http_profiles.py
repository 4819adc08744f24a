"""HTTP endpoints and their resilience, as manifests declare them."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import http_endpoint_pb2 as hpb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from services.executor.adapters.registry.http_profiles import circuit_config_of, http_endpoint_of, retry_policy_of
from services.executor.domain.http.endpoint import ArrayStyle, HttpParameter, ParameterLocation, SecretUse
from services.executor.domain.resilience.circuit import CircuitConfig
from services.executor.domain.resilience.retry import RetryPolicy


def http_manifest() -> mpb.ToolManifest:
    endpoint = hpb.HttpEndpoint(
        method=hpb.HTTP_METHOD_PUT,
        url="https://api.example.com/orders/{id}",
        parameters=[
            hpb.HttpParameter(
                argument="tags", place=hpb.HTTP_PLACE_QUERY, name="tag", array_style=hpb.ARRAY_STYLE_PIPE
            ),
            hpb.HttpParameter(argument="lang", place=hpb.HTTP_PLACE_HEADER),
        ],
        body_argument="order",
        secrets=[
            hpb.HttpSecret(
                secret="secret://crm_key", place=hpb.HTTP_PLACE_HEADER, name="Authorization", prefix="Bearer "
            )
        ],
        idempotency_header="Idempotency-Key",
    )
    return mpb.ToolManifest(execution=mpb.ExecutionProfile(runner=mpb.RUNNER_KIND_HTTP, http=endpoint))


def test_an_endpoint_has_the_places_of_its_manifest() -> None:
    endpoint = http_endpoint_of(http_manifest())
    assert endpoint is not None
    assert (endpoint.method, endpoint.url.origin, endpoint.url.placeholders) == (
        "PUT",
        "https://api.example.com",
        ("id",),
    )
    assert endpoint.parameters == (
        HttpParameter("tags", ParameterLocation.QUERY, "tag", ArrayStyle.PIPE),
        HttpParameter("lang", ParameterLocation.HEADER, "lang"),
    )
    assert endpoint.secrets == (SecretUse("crm_key", ParameterLocation.HEADER, "Authorization", "Bearer "),)
    assert (endpoint.body_argument, endpoint.idempotency_header) == ("order", "Idempotency-Key")


def test_failover_origins_have_the_path_of_the_endpoint() -> None:
    manifest = http_manifest()
    manifest.execution.http.failover_origins.extend(["https://eu.example.com", "https://us.example.com:8443"])
    endpoint = http_endpoint_of(manifest)
    assert endpoint is not None
    assert [(url.origin, url.path) for url in endpoint.urls] == [
        ("https://api.example.com", "/orders/{id}"),
        ("https://eu.example.com", "/orders/{id}"),
        ("https://us.example.com:8443", "/orders/{id}"),
    ]


def test_another_runner_has_no_endpoint() -> None:
    manifest = http_manifest()
    manifest.execution.runner = mpb.RUNNER_KIND_PYTHON
    assert http_endpoint_of(manifest) is None


def test_unset_fields_of_resilience_have_their_defaults() -> None:
    manifest = http_manifest()
    assert (retry_policy_of(manifest), circuit_config_of(manifest)) == (None, CircuitConfig())
    manifest.execution.retry_policy.max_attempts = 5
    manifest.execution.circuit_breaker.failure_rate = 20
    manifest.execution.circuit_breaker.slow_call_time.CopyFrom(Duration(nanos=500_000_000))
    assert retry_policy_of(manifest) == RetryPolicy(max_attempts=5)
    assert circuit_config_of(manifest) == CircuitConfig(failure_rate=0.2, slow_seconds=0.5)
