"""Decides in memory which entries match a filter, like the index in the database."""

from __future__ import annotations

from libs.common.json.jsonio import dump
from services.audit.domain.model import Entry, RecordFilter


class Matcher:
    """Matches entries with a filter. By tenant it matches roughly, like the database; tenancy.py filters exactly."""

    def __init__(self, record_filter: RecordFilter) -> None:
        self._filter = record_filter
        self._tenant = b'"tenant":' + dump(record_filter.tenant) if record_filter.tenant else b""
        exact = {
            "subject": record_filter.subject,
            "trace_id": record_filter.trace_id,
            "invocation_id": record_filter.invocation_id,
            "authorization": record_filter.authorization,
            "status": record_filter.status,
            "ticket": record_filter.ticket,
        }
        self._exact = [(Entry._fields.index(name), value) for name, value in exact.items() if value]

    def matches(self, entry: Entry) -> bool:
        """Return whether an entry matches all criteria."""
        wanted = self._filter
        return (
            self._tenant in entry.canonical
            and all(entry[column] == value for column, value in self._exact)
            and entry.tool_version.startswith(wanted.tool_prefix)
            and entry.resource.startswith(wanted.resource_prefix)
            and (bool(entry.resource) or not wanted.acts_only)
            and (wanted.from_time is None or entry.event_time >= wanted.from_time)
            and (wanted.to_time is None or entry.event_time < wanted.to_time)
        )
