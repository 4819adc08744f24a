"""A peer that cannot be had is left out with a line that says why, and the others are measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from bench.report.measurement import Row
from bench.suites import peers


def rows_until(error: Exception) -> Iterator[Row]:
    yield Row("peers", "measured before")
    raise error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (subprocess.CalledProcessError(1, ["uv", "pip"], stderr=b"resolving\nno such wheel\n"), "no such wheel"),
        (subprocess.CalledProcessError(3, ["uv", "pip"]), "exit 3 of uv"),
        (AssertionError("it ended at once"), "it ended at once"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_one_that_cannot_be_had_is_left_out(error: Exception, why: str) -> None:
    before, left_out = peers.if_it_can_be_had("a peer", lambda: rows_until(error))
    assert before.case == "measured before"
    assert left_out.case == f"a peer is left out: {why}"
    assert left_out.rps == 0
