"""Rebuilds the index columns of a record from its canonical form.

Every stored record has exactly these columns, however it was appended. Only the columns are decoded, so that a whole
log can be compared with its index.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from services.audit.domain.model import SEARCHABLE_CHARACTERS, Entry, searchable


class _Caller(msgspec.Struct, frozen=True, gc=False):
    subject: str = ""


class _Act(msgspec.Struct, frozen=True, gc=False):
    resource: str = ""


_NO_CALLER, _NO_ACT = _Caller(), _Act()


class _Columns(msgspec.Struct, gc=False):
    record_id: str
    event_time: str
    caller: _Caller = _NO_CALLER
    tool_version: str = ""
    trace_id: str = ""
    invocation_id: str = ""
    authorization: str = ""
    status: str = ""
    ticket: str = ""
    act: _Act = _NO_ACT


_decoder = msgspec.json.Decoder(_Columns)


def decode_entry(canonical: bytes) -> Entry | None:
    """Return the entry that was appended with these bytes; None if they are not a record."""
    try:
        columns = _decoder.decode(canonical)
        event_time = datetime.fromisoformat(columns.event_time)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    subject = columns.caller.subject
    index_texts: tuple[str, ...] = (
        subject,
        columns.tool_version,
        columns.trace_id,
        columns.invocation_id,
        columns.ticket,
        columns.act.resource,
    )
    # One check for all columns: nearly always each is searchable as it is.
    if b"\\u0000" in canonical or max(map(len, index_texts)) > SEARCHABLE_CHARACTERS:
        index_texts = tuple(map(searchable, index_texts))
    subject, tool, trace, invocation, ticket, resource = index_texts
    return Entry(
        columns.record_id,
        canonical,
        event_time,
        subject,
        tool,
        trace,
        invocation,
        columns.authorization,
        columns.status,
        ticket,
        resource,
    )
