"""What a record is found by, read from its canonical form once more.

Every record that the log holds has the columns that this says, whichever way it came: as a message, as a form, or from the
log itself. Only the members that are columns are read, so that a whole log can be compared with its index.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from services.audit.domain.model import SEARCHABLE_CHARACTERS, Entry, searchable


class _Caller(msgspec.Struct, frozen=True, gc=False):
    subject: str = ""


_NOBODY = _Caller()


class _Columns(msgspec.Struct, gc=False):
    record_id: str
    event_time: str
    caller: _Caller = _NOBODY
    tool_version: str = ""
    trace_id: str = ""
    invocation_id: str = ""
    authorization: str = ""
    status: str = ""
    ticket: str = ""


_decoder = msgspec.json.Decoder(_Columns)


def entry_again(canonical: bytes) -> Entry | None:
    """Return the entry as which a record with these bytes was appended; None for bytes that are no record."""
    try:
        said = _decoder.decode(canonical)
        event_time = datetime.fromisoformat(said.event_time)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    subject = said.caller.subject
    found_by: tuple[str, ...] = (subject, said.tool_version, said.trace_id, said.invocation_id, said.ticket)
    # Asked once for all of them: nearly always each is searchable as it is.
    if b"\\u0000" in canonical or max(map(len, found_by)) > SEARCHABLE_CHARACTERS:
        found_by = tuple(map(searchable, found_by))
    subject, tool, trace, invocation, ticket = found_by
    return Entry(
        said.record_id, canonical, event_time, subject, tool, trace, invocation, said.authorization, said.status, ticket
    )
