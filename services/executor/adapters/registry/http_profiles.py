"""Reads the HTTP endpoint and the resilience of a manifest. Pure."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import http_endpoint_pb2 as hpb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.secret_store.secret import secret_name
from libs.common.url_template import parse_url_template
from services.executor.domain.http.endpoint import ArrayStyle, HttpEndpoint, HttpParameter, ParameterLocation, SecretUse
from services.executor.domain.resilience.circuit import CircuitConfig
from services.executor.domain.resilience.retry import RetryPolicy

_PLACES = {hpb.HTTP_PLACE_QUERY: ParameterLocation.QUERY, hpb.HTTP_PLACE_HEADER: ParameterLocation.HEADER}
_STYLES = {
    hpb.ARRAY_STYLE_REPEATED: ArrayStyle.REPEATED,
    hpb.ARRAY_STYLE_COMMA: ArrayStyle.COMMA,
    hpb.ARRAY_STYLE_SPACE: ArrayStyle.SPACE,
    hpb.ARRAY_STYLE_PIPE: ArrayStyle.PIPE,
}


def http_endpoint_of(manifest: mpb.ToolManifest) -> HttpEndpoint | None:
    """Return the endpoint; None for another runner. Raises ValueError for one that admission would have refused."""
    if manifest.execution.runner != mpb.RUNNER_KIND_HTTP:
        return None
    message = manifest.execution.http
    url = parse_url_template(message.url)
    return HttpEndpoint(
        method=hpb.HttpMethod.Name(message.method).removeprefix("HTTP_METHOD_"),
        url=url,
        parameters=tuple(
            HttpParameter(each.argument, _PLACES[each.place], each.name or each.argument, _STYLES.get(each.array_style))
            for each in message.parameters
        ),
        body_argument=message.body_argument,
        secrets=tuple(_secret_use(each) for each in message.secrets),
        idempotency_header=message.idempotency_header,
        failover=tuple(replace(parse_url_template(origin), path=url.path) for origin in message.failover_origins),
    )


def retry_policy_of(manifest: mpb.ToolManifest) -> RetryPolicy | None:
    """Return the policy of retries; None if the manifest has none."""
    if not manifest.execution.HasField("retry_policy"):
        return None
    message, unset = manifest.execution.retry_policy, RetryPolicy()
    return RetryPolicy(
        max_attempts=message.max_attempts or unset.max_attempts,
        multiplier=message.backoff_multiplier or unset.multiplier,
        longest_delay=_seconds(message.backoff_max) or unset.longest_delay,
        statuses=frozenset(message.retry_on_status_codes) or unset.statuses,
    )


def circuit_config_of(manifest: mpb.ToolManifest) -> CircuitConfig:
    """Return when the service is left alone."""
    message, unset = manifest.execution.circuit_breaker, CircuitConfig()
    return CircuitConfig(
        failures=message.failure_threshold or unset.failures,
        failure_rate=message.failure_rate / 100 or unset.failure_rate,
        slow_seconds=_seconds(message.slow_call_time) or None,
        slow_rate=message.slow_call_rate / 100 or unset.slow_rate,
        window=_seconds(message.window) or unset.window,
        open_seconds=_seconds(message.open_time) or unset.open_seconds,
        successes=message.success_threshold or unset.successes,
        max_canaries=message.half_open_max_calls or unset.max_canaries,
    )


def _secret_use(message: hpb.HttpSecret) -> SecretUse:
    name = secret_name(message.secret)
    if name is None:
        raise ValueError("is not secret://name")
    return SecretUse(name, _PLACES[message.place], message.name, message.prefix)


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
