"""Types for the parts of a result envelope: effects, costs, stored content, compensation, deprecation, warnings.

`toolmesh_sdk.result` exports them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toolmesh.executor.v1 import result_envelope_pb2 as pb

from toolmesh_sdk._wire.payload import parse
from toolmesh_sdk._wire.times import to_datetime


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The deprecation of the version that was called."""

    sunset_time: datetime | None
    successor: str
    migration_guide_url: str


@dataclass(frozen=True, slots=True)
class CallWarning:
    """Something to know of the tool that was called, such as an older tool with a similar name: `look_alike`."""

    code: str
    message: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """A reference to a stored result. `access_token` is a secret: it lets any caller of the tenant read the result."""

    ref: str
    size: int
    digest: str
    media_type: str
    expires: datetime | None
    preview: bytes = field(repr=False)
    """The first bytes of the result, truncated."""
    access_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of a call. `source` is `observed` by the sandbox or `reported` by the tool.

    The digests are `sha256:...` of a file's content, `folder`, or empty if there was nothing or it is unknown.
    """

    resource: str
    operation: str
    source: str
    digest_before: str = ""
    digest_after: str = ""


@dataclass(frozen=True, slots=True)
class DeclaredEffect:
    """One effect that a manifest declares: a pattern of resources, and create, update or delete."""

    resource: str
    operation: str


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """One change of the arguments before the tool received them: its path, source and reason."""

    path: str
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compensation:
    """The call that undoes this one; its arguments are None if the tool did not set them."""

    tool: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Cost:
    """One cost of a call, in millionths of the currency unit."""

    category: str
    amount_micros: int
    currency: str


@dataclass(frozen=True, slots=True)
class RenderedResult:
    """The result as text for a model, a person and search; empty if there is only its content."""

    model: str
    person: str
    search: str


def parse_stored_result(part: pb.PersistedResult) -> StoredResult:
    """Convert a reference to a stored result."""
    return StoredResult(
        ref=part.ref,
        size=part.size_bytes,
        digest=part.digest,
        media_type=part.media_type,
        expires=to_datetime(part.expire_time),
        preview=part.preview,
        access_token=part.access_token,
    )


def parse_effect(effect: pb.ObservedEffect) -> Effect:
    """Convert an effect."""
    source = enum_label(pb.EffectSource, effect.source, "EFFECT_SOURCE_")
    return Effect(effect.resource, effect.operation, source, effect.digest_before, effect.digest_after)


def parse_declared(effects: Iterable[pb.DeclaredEffect]) -> tuple[DeclaredEffect, ...]:
    """Convert declared effects."""
    return tuple(DeclaredEffect(effect.resource, effect.operation) for effect in effects)


def parse_compensation(undo: pb.Compensation) -> Compensation:
    """Convert a compensation. Raises RESULT_INVALID if its arguments are not JSON."""
    return Compensation(undo.tool, parse(undo.arguments))


def parse_deprecation(notice: pb.DeprecationNotice) -> Deprecation:
    """Convert a deprecation notice."""
    return Deprecation(to_datetime(notice.sunset_time), notice.successor, notice.migration_guide_url)


def enum_label(enum: Any, number: int, prefix: str) -> str:
    """Return the name of an enum value in lower case, without its prefix; the number itself if it is unknown."""
    try:
        return str(enum.Name(number)).removeprefix(prefix).lower()
    except ValueError:
        return str(number)
