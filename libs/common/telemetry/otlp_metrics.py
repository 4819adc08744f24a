"""Sends the process's Prometheus metrics over OTLP as well: one set of metrics, two ways to read it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import grpc
import grpc.aio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric

from libs.common.telemetry.log import Log


def export_request(
    service: str, instance: str, registry: CollectorRegistry, started_ns: int
) -> ExportMetricsServiceRequest:
    """Convert everything in the registry. Counters and histograms are cumulative since the start of the process."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(
        _attributes({"service.name": f"toolmesh-{service}", "service.instance.id": instance}.items())
    )
    scope = resource.scope_metrics.add()
    now = time.time_ns()
    for metric in registry.collect():
        converted = _convert(metric, started_ns, now)
        if converted is not None:
            scope.metrics.append(converted)
    return request


async def push_forever(service: str, instance: str, endpoint: str, log: Log, *, seconds: float = 15.0) -> None:
    """Send the metrics at intervals until canceled. A collector that is down costs nothing but a log line."""
    target = endpoint.split("://", 1)[1].rstrip("/")
    started = time.time_ns()
    secure = endpoint.startswith("https://")
    channel = (
        grpc.aio.secure_channel(target, grpc.ssl_channel_credentials()) if secure else grpc.aio.insecure_channel(target)
    )
    async with channel:
        stub = MetricsServiceStub(channel)  # type: ignore[no-untyped-call]
        while True:
            await asyncio.sleep(seconds)
            try:
                await stub.Export(export_request(service, instance, REGISTRY, started), timeout=5.0)
            except grpc.aio.AioRpcError as error:
                log.warning("metrics not delivered", code=error.code().name)


def _convert(metric: Metric, started: int, now: int) -> otlp.Metric | None:
    converted = otlp.Metric(name=metric.name, description=metric.documentation)
    if metric.type == "counter":
        converted.sum.is_monotonic = True
        converted.sum.aggregation_temporality = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
        wanted = [s for s in metric.samples if s.name.endswith("_total")]
        converted.sum.data_points.extend(_point(s.labels, s.value, started, now) for s in wanted)
    elif metric.type == "gauge":
        converted.gauge.data_points.extend(_point(s.labels, s.value, 0, now) for s in metric.samples)
    elif metric.type == "histogram":
        converted.histogram.aggregation_temporality = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
        converted.histogram.data_points.extend(_histograms(metric, started, now))
    else:
        return None
    return converted


def _histograms(metric: Metric, started: int, now: int) -> Iterable[otlp.HistogramDataPoint]:
    series: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in metric.samples:
        key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        name = f"le={sample.labels['le']}" if "le" in sample.labels else sample.name.rsplit("_", 1)[1]
        series.setdefault(key, {})[name] = sample.value
    for labels, values in series.items():
        bounds = sorted(float(k[3:]) for k in values if k.startswith("le=") and k != "le=+Inf")
        cumulative = [values[f"le={bound}"] for bound in bounds] + [values["le=+Inf"]]
        counts = [int(high - low) for low, high in zip([0.0, *cumulative], cumulative, strict=False)]
        yield otlp.HistogramDataPoint(
            attributes=_attributes(labels),
            start_time_unix_nano=started,
            time_unix_nano=now,
            count=int(values["le=+Inf"]),
            sum=values.get("sum", 0.0),
            explicit_bounds=bounds,
            bucket_counts=counts,
        )


def _point(labels: dict[str, str], value: float, started: int, now: int) -> otlp.NumberDataPoint:
    attributes = _attributes(labels.items())
    return otlp.NumberDataPoint(
        attributes=attributes, start_time_unix_nano=started, time_unix_nano=now, as_double=value
    )


def _attributes(labels: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in labels]
