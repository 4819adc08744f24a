"""Mergeable latency quantiles: a DDSketch with integer counts.

The buckets are those of DDSketch's logarithmic mapping with a relative accuracy of 1 %: with g = 1.01 / 0.99, bucket 0
holds the latency zero and bucket b the latencies above g^(b-2) and up to g^(b-1) microseconds. A quantile is the value
of its bucket that is at most 1 % from all others in it. Merging adds counts, so its order does not matter. Buckets are
never collapsed: `MAX_MICROSECONDS` is in bucket 1431.

Stored form, little-endian: one byte 1 (version of the form), one byte w (bytes per count: 1, 2, 4 or 8), two bytes n,
then n bucket numbers of two bytes in rising order, then their n counts of w bytes. Equal sketches have equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ddsketch.mapping import LogarithmicMapping

RELATIVE_ACCURACY = 0.01
MAX_MICROSECONDS = 30 * 86_400 * 1_000_000

_MAPPING = LogarithmicMapping(RELATIVE_ACCURACY)
_VERSION = 1
_WIDTHS = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_FORMATS = dict(_WIDTHS)


class Sketch:
    """Counts of latencies by bucket. Sketches with equal counts are equal."""

    __slots__ = ("_buckets",)

    def __init__(self, buckets: Iterable[tuple[int, int]] = ()) -> None:
        self._buckets = dict(buckets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sketch) and self._buckets == other._buckets

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        """Number of latencies."""
        return sum(self._buckets.values())

    def add(self, microseconds: int) -> None:
        """Count one latency, at most `MAX_MICROSECONDS`."""
        bucket = _bucket(microseconds)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def merge(self, other: Sketch) -> None:
        """Add the counts of another sketch."""
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def percentile(self, percent: int) -> float:
        """Return the smallest latency, in microseconds and with an error of at most 1 %, that the given percentage of
        all latencies does not exceed.

        Raises ValueError for an empty sketch.
        """
        # Rank of the last latency within the percentage, from 0, rounded up in integers.
        rank = max(0, -(-percent * self.count // 100) - 1)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank < 0:
                return float(_MAPPING.value(bucket - 1)) if bucket else 0.0
        raise ValueError("the sketch is empty")

    def count_within(self, microseconds: int) -> int:
        """Return how many latencies are at most this long, including those of the same bucket: up to 2.1 % longer."""
        last = _bucket(min(microseconds, MAX_MICROSECONDS))
        return sum(count for bucket, count in self._buckets.items() if bucket <= last)

    def encode(self) -> bytes:
        """Return the stored form."""
        buckets = sorted(self._buckets)
        counts = [self._buckets[bucket] for bucket in buckets]
        highest = max(counts, default=0)
        width, code = next(entry for entry in _WIDTHS if highest < 1 << 8 * entry[0])
        return struct.pack(f"<BBH{len(buckets)}H{len(buckets)}{code}", _VERSION, width, len(buckets), *buckets, *counts)

    @classmethod
    def decode(cls, stored: bytes) -> Sketch:
        """Return the sketch of a stored form; raises ValueError for an unknown form."""
        version, width, length = struct.unpack_from("<BBH", stored)
        if version != _VERSION or len(stored) != 4 + length * (2 + width):
            raise ValueError("unknown sketch encoding")
        numbers = struct.unpack_from(f"<{length}H{length}{_FORMATS[width]}", stored, 4)
        return cls(zip(numbers[:length], numbers[length:], strict=True))


def _bucket(microseconds: int) -> int:
    return int(_MAPPING.key(microseconds)) + 1 if microseconds > 0 else 0
