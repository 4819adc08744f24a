"""The authz process starts completely or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from libs.common.runtime.settings import load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from libs.common.testing.clock import ManualClock
from services.authz.adapters.cedar.compiler import PolicySetError
from services.authz.config import Settings
from services.authz.tests.conftest import SECOND
from services.authz.tests.policy_texts import permit, write_policy_set
from services.authz.wiring import compose


@pytest.fixture
def environment(
    process_environment: Callable[[str], dict[str, str]], database: Callable[[str], str], folder: Path
) -> dict[str, str]:
    own = {"TOOLMESH_DATABASE_URL": database("authz"), "TOOLMESH_SIGNING_KEYS": str(folder)}
    return process_environment("authz") | own


@pytest.fixture
async def process(repository: Path) -> AsyncIterator[Callable[..., Any]]:
    """Return a factory of real processes, which are ended with the test."""
    started: list[asyncio.subprocess.Process] = []

    async def begin(environment: dict[str, str]) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.authz",
            cwd=repository,
            env=environment | {"PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(child)
        return child

    yield begin
    for child in started:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def events_until(child: asyncio.subprocess.Process, event: str) -> list[str]:
    assert child.stdout is not None
    seen: list[str] = []
    while not seen or seen[-1] != event:
        line = await child.stdout.readline()
        assert line, f"ended after {seen}"
        seen.append(json.loads(line)["event"])
    return seen


async def test_authz_starts_serves_and_stops_in_order(process: Callable[..., Any], environment: dict[str, str]) -> None:
    child = await process(environment)
    await events_until(child, "ready")
    child.send_signal(signal.SIGTERM)
    assert await events_until(child, "stopped") == ["stopping", "stopped"]
    assert await child.wait() == 0


async def test_authz_does_not_start_with_an_invalid_key(
    process: Callable[..., Any], environment: dict[str, str], folder: Path
) -> None:
    (folder / SECOND).write_text("not a key")
    child = await process(environment)
    await events_until(child, "could not start")
    assert await child.wait() == 1


def test_authz_is_not_composed_with_invalid_policies(
    environment: dict[str, str], quiet: Log, clock: ManualClock, tmp_path: Path
) -> None:
    policies = write_policy_set(tmp_path / "policies", permit("misspelt", "principal.trust_lvl > 1"))
    with pytest.raises(PolicySetError):
        compose(load(Settings, environment), quiet, Tracing(), clock=clock, policies=policies)


async def test_authz_does_not_start_with_an_invalid_file_of_external_issuers(
    process: Callable[..., Any], environment: dict[str, str], tmp_path: Path
) -> None:
    issuers = tmp_path / "issuers.json"
    issuers.write_text('{"issuers": [{"issuer": "https://login.example.com"}]}')
    child = await process(environment | {"TOOLMESH_TRUSTED_ISSUERS": str(issuers)})
    await events_until(child, "could not start")
    assert await child.wait() == 1
