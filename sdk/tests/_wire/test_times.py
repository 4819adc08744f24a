"""Conversion between datetimes and protobuf timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh_sdk._wire.times import to_datetime, to_timestamp


def test_a_time_with_an_offset_is_converted_to_utc_and_back() -> None:
    time = datetime(2026, 11, 15, 8, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=2)))
    stamp = to_timestamp(time)
    assert stamp == Timestamp(seconds=1794722400, nanos=250_000_000)
    assert to_datetime(stamp) == time.astimezone(UTC)


def test_none_and_an_unset_timestamp_correspond() -> None:
    assert to_timestamp(None) is None
    assert to_datetime(Timestamp()) is None
