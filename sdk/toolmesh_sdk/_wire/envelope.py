"""The parts of a result's envelope, typed: what a call changed, what it cost, where it is stored, what undoes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import result_envelope_pb2 as pb

from toolmesh_sdk._wire.payload import parse


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The version that answered is about to end."""

    sunset_time: datetime | None
    successor: str
    migration_guide_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A result that is stored instead of embedded. `access_token` is a secret: with it, whoever belongs to the tenant reads the result."""

    ref: str
    size: int
    digest: str
    media_type: str
    expires: datetime | None
    preview: bytes = field(repr=False)
    """How it begins; cut anywhere."""
    access_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Effect:
    """One change to the world. `source` is observed where the sandbox saw it, reported where the tool said so."""

    resource: str
    operation: str
    source: str


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """One change to the arguments before the tool received them: where, by whom, and by which rule."""

    path: str
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compensation:
    """The call that would undo this one; its arguments are None where the tool did not say them."""

    tool: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Cost:
    """One part of what a call cost, in millionths of the currency's unit."""

    category: str
    amount_micros: int
    currency: str


@dataclass(frozen=True, slots=True)
class Shown:
    """The result as text for each of its readers; empty where its content is all there is."""

    model: str
    person: str
    search: str


def stored_of(part: pb.PersistedResult) -> Stored:
    """Read a reference to a stored result."""
    return Stored(
        ref=part.ref,
        size=part.size_bytes,
        digest=part.digest,
        media_type=part.media_type,
        expires=time_of(part.expire_time),
        preview=part.preview,
        access_token=part.access_token,
    )


def effect_of(effect: pb.ObservedEffect) -> Effect:
    """Read one change to the world."""
    return Effect(effect.resource, effect.operation, word(pb.EffectSource, effect.source, "EFFECT_SOURCE_"))


def compensation_of(undo: pb.Compensation) -> Compensation:
    """Read the call that undoes another. Raises RESULT_INVALID where its arguments are not JSON."""
    return Compensation(undo.tool, parse(undo.arguments))


def deprecation_of(notice: pb.DeprecationNotice) -> Deprecation:
    """Read a notice."""
    return Deprecation(time_of(notice.sunset_time), notice.successor, notice.migration_guide_url)


def time_of(stamp: Timestamp) -> datetime | None:
    """Return the moment in UTC; None when it was never set."""
    return stamp.ToDatetime(UTC) if stamp.seconds or stamp.nanos else None


def word(enum: Any, number: int, prefix: str) -> str:
    """Return the own part of an enum value's name in lower case; the number itself for a value of a newer contract."""
    try:
        return str(enum.Name(number)).removeprefix(prefix).lower()
    except ValueError:
        return str(number)
