"""Calls as the mesh's own services make them: through a channel of grpc.aio, from Python.

A call has two ends. Where a service is asked by another one, or by an orchestrator with our stubs, both ends are
Python, and what counts is
how much longer an answer takes than an empty one over the same channel. The generator leaves the caller's end out,
which is right for what a
service can carry, and says nothing about what a caller waits for.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import grpc
import grpc.aio
import uvloop

from bench.environment.machine import cpu_seconds
from bench.load.generator import SPAN, STAMP, Body, Target, UnansweredError
from bench.report.measurement import Row

_STAMP = STAMP.encode()
_REACHED_SECONDS = 30.0
_numbers = itertools.count(time.time_ns())


def ask(
    suite: str,
    case: str,
    target: Target,
    bodies: Sequence[Body],
    *,
    concurrency: int,
    pids: Sequence[int] = (),
    seconds: float = 1.0,
    warm: float = 0.25,
) -> Row:
    """Call for so long over one channel and return what was waited; what the processes used is shared out among all
    calls, warm ones
    included. Bodies go round in their order. Raises UnansweredError if a call fails or none ends in time."""
    before, waits = cpu_seconds(pids), Waits(warm, seconds * SPAN)
    try:
        uvloop.run(_called(target, bodies, concurrency, waits))
    except (grpc.RpcError, TimeoutError) as error:
        raise UnansweredError(f"{suite} / {case}: {error!r}") from None
    used = cpu_seconds(pids) - before
    if not waits.measured:
        raise UnansweredError(f"{suite} / {case}: no call was answered within {seconds * SPAN} s")
    p50, p95, p99 = waits.quantiles()
    rate, each = round(len(waits.measured) / (seconds * SPAN), 1), round(used / waits.calls * 1e6, 1)
    return Row(suite, case, concurrency, rate, p50, p95, p99, cpu_us_per_call=each)


@dataclass(frozen=True)
class Asked:
    """One thing to ask for."""

    case: str
    target: Target
    bodies: Callable[[], Sequence[Body]]
    """Created for each measurement: some questions are new only once."""
    pids: Sequence[int] = ()


def ask_in_turns(
    suite: str, floor: Asked, cases: Sequence[Asked], *, concurrency: int = 1, seconds: float = 0.4, turns: int = 11
) -> list[tuple[Row, Row]]:
    """Ask for the floor and for every case in turns, each over a channel of its own, often rather than long. Return
    of each case the turn in the
    middle, by how many floors it took, with that turn's floor: the machine's pace changes from second to second, and
    a channel has one
    of two by where threads come to lie."""
    asked = partial(_asked, suite, concurrency, seconds)
    rounds = [(asked(floor), [asked(case) for case in cases]) for _ in range(turns)]
    return [middle_pair([(empty, found[place]) for empty, found in rounds]) for place in range(len(cases))]


def _asked(suite: str, concurrency: int, seconds: float, each: Asked) -> Row:
    case = f"{each.case}, by Python stubs"
    return ask(suite, case, each.target, each.bodies(), concurrency=concurrency, pids=each.pids, seconds=seconds)


def middle_pair(pairs: Sequence[tuple[Row, Row]]) -> tuple[Row, Row]:
    """Return the pair in the middle, by how much longer the second waited than the first."""
    return sorted(pairs, key=lambda pair: pair[1].p50_ms / pair[0].p50_ms)[len(pairs) // 2]


class Waits:
    """How long the calls took that were made after the warm ones."""

    def __init__(self, warm: float, seconds: float) -> None:
        self._warm, self._seconds = warm, seconds
        self.measured: list[float] = []
        self.calls = 0

    def begin(self) -> Callable[[], bool]:
        """Begin to count now; return what says whether it is over."""
        self._from = time.perf_counter() + self._warm
        end = self._from + self._seconds
        return lambda: time.perf_counter() > end

    def add(self, begin: float, end: float) -> None:
        self.calls += 1
        if begin >= self._from:
            self.measured.append(end - begin)

    def quantiles(self) -> list[float]:
        """Return what half, 95 and 99 of a hundred calls waited at most, in milliseconds."""
        found = sorted(self.measured)
        return [round(found[min(len(found) - 1, len(found) * q // 100)] * 1000, 3) for q in (50, 95, 99)]


async def _called(target: Target, bodies: Sequence[Body], concurrency: int, waits: Waits) -> None:
    async with _channel(target) as channel:
        await asyncio.wait_for(channel.channel_ready(), _REACHED_SECONDS)
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(target.path)
        metadata = tuple(target.headers.items())
        payloads, over = itertools.cycle([body.payload for body in bodies]), waits.begin()

        async def one() -> None:
            while not over():
                sent = stamped(next(payloads))
                begin = time.perf_counter()
                await call(sent, metadata=metadata, timeout=30)
                waits.add(begin, time.perf_counter())

        await asyncio.gather(*(one() for _ in range(concurrency)))


def stamped(payload: bytes) -> bytes:
    """Return what is sent: where a payload holds the stamp, a number of its own instead."""
    return payload.replace(_STAMP, b"%0*d" % (len(_STAMP), next(_numbers))) if _STAMP in payload else payload


def _channel(target: Target) -> grpc.aio.Channel:
    assert target.pki is not None, "stubs show a certificate"
    names = [target.pki / f"{target.identity}{end}" for end in (".key", ".pem")]
    credentials = grpc.ssl_channel_credentials(
        (target.pki / "ca.pem").read_bytes(), *(each.read_bytes() for each in names)
    )
    options = [("grpc.ssl_target_name_override", target.authority)]
    return grpc.aio.secure_channel(target.address.removeprefix("h2://"), credentials, options=options)
