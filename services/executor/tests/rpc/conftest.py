"""Two executors with tools of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from libs.common.telemetry.log import Log
from services.executor.config import Settings
from services.executor.tests.rpc.replicas import Replicas, running_replicas
from tests.harness.executors import booking_executor


@pytest.fixture
async def replicas(
    pki: Any,
    signer: Any,
    executor_settings: Callable[..., Settings],
    quiet: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Replicas]:
    monkeypatch.setattr(booking_executor, "_FAULTS", tmp_path)
    async with running_replicas(pki, signer, executor_settings, quiet, tmp_path) as running:
        yield running
