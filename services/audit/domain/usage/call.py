"""Derives a call from the record that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypedDict

import msgspec
from msgspec import Struct

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import split_version_name
from services.audit.domain.model import searchable
from services.audit.domain.usage.sketch import MAX_MICROSECONDS

# Value of a dimension in cells of folded calls. No tool and no DID has this name.
OTHER = "*"
INVALID_RESULT = int(Reason.RESULT_INVALID)
# Failures of the mesh around a run. They say nothing about the tool.
_NOT_THE_TOOLS = {
    int(Reason.SANDBOX_NOT_READY): "not_started",
    int(Reason.SANDBOX_UNAVAILABLE): "not_started",
    int(Reason.SERVICE_UNAVAILABLE): "canceled",
}
_FINAL_EVENTS = frozenset(
    {
        "invocation_succeeded",
        "invocation_failed",
        "invocation_canceled",
        "invocation_timed_out",
        "invocation_validation_failed",
    }
)


class Outcome(StrEnum):
    """Outcome of a call. The values are the names of the contract's counters."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"
    NOT_STARTED = "not_started"
    REFUSED = "refused"
    REPLAYED = "replayed"


# Completed calls have a latency and are the base of the success rate.
COMPLETED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT})
# Outcomes that returned an error to the caller.
ERRORS = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.NOT_STARTED, Outcome.REFUSED)


class _Caller(TypedDict, total=False):
    subject: str
    tenant: str


class CallFields(TypedDict, total=False):
    """The fields of a record's canonical form that counting reads."""

    event_class: str
    event_time: str
    tool_version: str
    tool_digest: str
    caller: _Caller
    task_id: str
    status: str
    state: str
    attempt: int
    replayed: bool
    error_reason: str
    latency_us: int
    cost_micros: int


# Skipping the other fields saves most of the decoding.
decode_fields = msgspec.json.Decoder(CallFields).decode


class DecodedRecord(Struct, frozen=True):
    """A record with its decoded fields; None if its payload was erased."""

    sequence: int
    fields: CallFields | None
    log_time: datetime


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The records from `first` to `end` (exclusive) in log order, without those that cannot end a call."""

    first: int
    end: int
    records: list[DecodedRecord]
    more: bool = False


class Call(NamedTuple):
    """The counted attributes of a call. `tool` and `version` are empty if the requested tool does not exist."""

    tool: str
    version: str
    tenant: str
    subject: str
    task: str
    outcome: Outcome
    event_time: datetime
    reason: int = 0
    latency_us: int | None = None
    cost_micros: int = 0


def call_of(record: DecodedRecord) -> Call | None:
    """Return the call that a record ends; None for any other record and for an erased payload."""
    fields = record.fields
    outcome = _outcome(fields) if fields else None
    if fields is None or outcome is None:
        return None
    # Without a digest no tool was found, and the name is arbitrary text of the caller. Counting such names would let
    # callers fill the tables.
    tool, version = _tool(fields.get("tool_version", "")) if fields.get("tool_digest") else ("", "")
    caller = fields.get("caller", {})
    return Call(
        tool=tool,
        version=version,
        tenant=searchable(caller.get("tenant", "")),
        subject=searchable(caller.get("subject", "")),
        task=searchable(fields.get("task_id", "")),
        outcome=outcome,
        # A writer's clock that is ahead must not create cells of future days.
        event_time=min(datetime.fromisoformat(fields["event_time"]), record.log_time).astimezone(UTC),
        reason=0 if outcome in (Outcome.SUCCEEDED, Outcome.REPLAYED) else _reason(fields),
        latency_us=_latency(fields) if outcome in COMPLETED else None,
        cost_micros=fields.get("cost_micros", 0),
    )


def _outcome(fields: CallFields) -> Outcome | None:
    event = fields.get("event_class")
    if event == "permission_decided":
        # After a permit the final record follows; a refusal is itself the end of the call.
        return Outcome.REFUSED if fields.get("status") == "error" else None
    if event not in _FINAL_EVENTS:
        return None
    if fields.get("replayed"):
        return Outcome.REPLAYED
    if event == "invocation_succeeded":
        return Outcome.SUCCEEDED
    if fields.get("state") == "denied":
        return Outcome.REFUSED
    if not fields.get("attempt"):
        return Outcome.NOT_STARTED
    if outcome := _NOT_THE_TOOLS.get(_reason(fields)):
        return Outcome(outcome)
    return {"invocation_timed_out": Outcome.TIMED_OUT, "invocation_canceled": Outcome.CANCELED}.get(
        event, Outcome.FAILED
    )


@lru_cache(maxsize=256)
def _tool(name: str) -> tuple[str, str]:
    try:
        tool, version = split_version_name(name)
    except MeshError:
        return "", ""
    return tool.qualified, version


def _reason(fields: CallFields) -> int:
    code = str(fields.get("error_reason", "")).partition(" ")[0].removeprefix("E")
    return int(code) if code.isascii() and code.isdigit() else 0


def _latency(fields: CallFields) -> int | None:
    microseconds = fields.get("latency_us")
    return None if microseconds is None else max(0, min(microseconds, MAX_MICROSECONDS))
