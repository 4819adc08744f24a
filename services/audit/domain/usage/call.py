"""One call, as the record that ends it tells of it."""

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
from services.audit.domain.usage.sketch import MOST

# Stands for everything that was not kept apart. No tool has this name, and no DID does.
OTHER = "*"
INVALID_RESULT = int(Reason.RESULT_INVALID)
_ENDINGS = frozenset(
    {
        "invocation_succeeded",
        "invocation_failed",
        "invocation_canceled",
        "invocation_timed_out",
        "invocation_validation_failed",
    }
)


class Outcome(StrEnum):
    """What became of a call; each call has one. The words are the names of the contract's counts."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"
    NOT_STARTED = "not_started"
    REFUSED = "refused"
    REPLAYED = "replayed"


# These came to an end of their own: what they took is the tool's latency, and they are what a success rate is a rate of.
COMPLETED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT})
# These were answered with an error.
ERRORS = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.NOT_STARTED, Outcome.REFUSED)


class _Caller(TypedDict, total=False):
    subject: str
    tenant: str


class Form(TypedDict, total=False):
    """A record's canonical form, as far as counting looks at it."""

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


# Passes over everything else, which is most of a record and most of the reading.
read_form = msgspec.json.Decoder(Form).decode


class Evidence(Struct, frozen=True):
    """A record at its place in the log: its canonical form, read. None where its payload was erased."""

    sequence: int
    form: Form | None
    log_time: datetime


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the log from `first` to just before `end`, in its order. Records that cannot end a call are left out."""

    first: int
    end: int
    evidence: list[Evidence]
    more: bool = False


class Call(NamedTuple):
    """What is counted of a call. `tool` and `version` are empty if it named nothing that the mesh has."""

    tool: str
    version: str
    tenant: str
    subject: str
    task: str
    outcome: Outcome
    moment: datetime
    reason: int = 0
    latency_us: int | None = None
    cost_micros: int = 0


def call_of(evidence: Evidence) -> Call | None:
    """Return the call that a record ends; None for every other step, and for a payload that was erased."""
    form = evidence.form
    outcome = _outcome(form) if form else None
    if form is None or outcome is None:
        return None
    # Without a digest none was found, and what was asked for is any text a caller likes, also one in the form of a version's name:
    # counting each would let callers fill the tables, and leave no room for what is really used.
    tool, version = _tool(form.get("tool_version", "")) if form.get("tool_digest") else ("", "")
    caller = form.get("caller", {})
    return Call(
        tool=tool,
        version=version,
        tenant=searchable(caller.get("tenant", "")),
        subject=searchable(caller.get("subject", "")),
        task=searchable(form.get("task_id", "")),
        outcome=outcome,
        # A clock that is ahead would otherwise open days that have not begun.
        moment=min(datetime.fromisoformat(form["event_time"]), evidence.log_time).astimezone(UTC),
        reason=0 if outcome in (Outcome.SUCCEEDED, Outcome.REPLAYED) else _reason(form),
        latency_us=_latency(form) if outcome in COMPLETED else None,
        cost_micros=form.get("cost_micros", 0),
    )


def _outcome(form: Form) -> Outcome | None:
    event = form.get("event_class")
    if event == "permission_decided":
        # Where policy said yes, the outcome follows; where it did not, this record is the end.
        return Outcome.REFUSED if form.get("status") == "error" else None
    if event not in _ENDINGS:
        return None
    if form.get("replayed"):
        return Outcome.REPLAYED
    if event == "invocation_succeeded":
        return Outcome.SUCCEEDED
    if form.get("state") == "denied":
        return Outcome.REFUSED
    if not form.get("attempt"):
        return Outcome.NOT_STARTED
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


def _reason(form: Form) -> int:
    code = str(form.get("error_reason", "")).partition(" ")[0].removeprefix("E")
    return int(code) if code.isascii() and code.isdigit() else 0


def _latency(form: Form) -> int | None:
    microseconds = form.get("latency_us")
    return None if microseconds is None else max(0, min(microseconds, MOST))
