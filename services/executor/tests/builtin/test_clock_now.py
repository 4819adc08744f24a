"""clock_now."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.executor.builtin.clock_now import ClockNow

MOMENT = datetime(2026, 7, 1, 10, 30, 15, 123_987, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "iso"),
    [
        ("UTC", "2026-07-01T10:30:15.123+00:00"),
        ("Europe/Vienna", "2026-07-01T12:30:15.123+02:00"),
        ("America/Argentina/Buenos_Aires", "2026-07-01T07:30:15.123-03:00"),
    ],
)
def test_it_tells_the_time_of_a_zone(zone: str, iso: str) -> None:
    answer = ClockNow(ManualClock(MOMENT)).call({"timezone": zone})
    assert answer == {"iso": iso, "unix_ms": 1782901815123, "timezone": zone}


@pytest.mark.parametrize("zone", ["Nowhere", "America", "Europe/Nowhere", "posixrules/x"])
def test_an_unknown_zone_is_an_invalid_argument(zone: str) -> None:
    with pytest.raises(MeshError) as caught:
        ClockNow(ManualClock(MOMENT)).call({"timezone": zone})
    assert caught.value.reason is Reason.ARGUMENTS_INVALID
    assert [v.path for v in caught.value.violations] == ["/timezone"]
