"""Counting as a part of a process that is killed without warning; tests/faults kills it more often."""

from __future__ import annotations

from pathlib import Path

from services.audit.tests.usage_kills import kill_while_counting


async def test_a_process_killed_while_it_counts_counts_nothing_twice_and_forgets_nothing(
    audit_environment: dict[str, str], repository: Path
) -> None:
    deaths = await kill_while_counting(audit_environment, repository, records=6_000, kills=1)
    assert deaths[0] < deaths[-1], "it was over before anything was killed"
