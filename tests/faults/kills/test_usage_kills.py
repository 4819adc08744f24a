"""The process that counts is killed again and again while it works through a long log: every record is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.audit.tests.conftest import audit_environment, authz_port, checkpoint_key, checkpoint_key_file
from services.audit.tests.usage_kills import kill_while_counting

__all__ = ["audit_environment", "authz_port", "checkpoint_key", "checkpoint_key_file"]


@pytest.mark.faults
@pytest.mark.timeout(600)
async def test_twelve_deaths_while_counting(audit_environment: dict[str, str], repository: Path) -> None:
    deaths = await kill_while_counting(audit_environment, repository, records=60_000, kills=12)
    assert deaths[-2] < 60_000, "it was over before everything was killed"
