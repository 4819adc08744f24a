"""Converts between datetimes and protobuf timestamps."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp


def to_datetime(stamp: Timestamp) -> datetime | None:
    """Return a timestamp in UTC; None if it is unset."""
    return stamp.ToDatetime(UTC) if stamp.seconds or stamp.nanos else None


def to_timestamp(time: datetime | None) -> Timestamp | None:
    """Return an aware datetime as a timestamp; None for None."""
    if time is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp
