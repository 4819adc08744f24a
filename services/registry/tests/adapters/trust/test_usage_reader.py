"""The usage reader: conversion, and when usage counts as unknown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import usage_service_pb2 as pb

from libs.common.errors import MeshError, Reason
from libs.common.rpc.client import channel_to
from libs.common.runtime.settings import Address
from services.registry.adapters.trust.usage_reader import AuditUsageReader, UnavailableUsageReader, usage_of
from services.registry.domain.trust.usage import Usage
from services.registry.tests.service_stubs import ONE, counting_audit

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def answer(**more: Any) -> pb.GetToolUsageResponse:
    made = pb.GetToolUsageResponse(name=ONE, last_call_time=Timestamp(seconds=1_800_000_000), **more)
    made.usage.calls, made.usage.succeeded, made.usage.failed, made.usage.timed_out, made.usage.refused = (
        20,
        8,
        1,
        1,
        10,
    )
    return made


def test_a_usage_response_is_converted() -> None:
    read = usage_of(answer(invalid_result_rate=0.25, within_latency_rate=0.5))
    assert read == Usage(10, 8, 0.75, 0.5, 20, datetime.fromtimestamp(1_800_000_000, UTC))
    assert read.success_rate == 0.8


def test_unset_rates_are_none() -> None:
    read = usage_of(pb.GetToolUsageResponse())
    assert (read.success_rate, read.valid_results, read.within_latency, read.last_call) == (None, None, None, None)


async def test_usage_sends_the_declared_time_and_refuses_outdated_counts(
    pki: Any, signer: Any, process_environment: Callable[[str], dict[str, str]]
) -> None:
    own = pki.of("registry")
    files = SimpleNamespace(tls_cert=own.cert, tls_key=own.key, tls_ca=pki.ca)
    async with counting_audit(signer, process_environment) as audit:
        channel = channel_to("audit", audit.address, files)
        audit.answers[ONE] = answer()
        reader = AuditUsageReader(channel)
        assert (await reader.usage(ONE, SINCE, timedelta(seconds=5))).calls == 20
        assert (audit.asked[0].declared_latency.seconds, audit.asked[0].HasField("from_time")) == (5, True)
        audit.answers[ONE].coverage.log_records = 10_001
        with pytest.raises(MeshError) as behind:
            await reader.usage(ONE, SINCE)
        await channel.close()
    assert behind.value.reason is Reason.SERVICE_UNAVAILABLE


async def test_usage_is_unknown_without_the_audit_service(pki: Any) -> None:
    own = pki.of("registry")
    files = SimpleNamespace(tls_cert=own.cert, tls_key=own.key, tls_ca=pki.ca)
    channel = channel_to("audit", Address("127.0.0.1", 1), files)
    for reader in (AuditUsageReader(channel), UnavailableUsageReader()):
        with pytest.raises(MeshError) as caught:
            await reader.usage(ONE, SINCE)
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    await channel.close()
