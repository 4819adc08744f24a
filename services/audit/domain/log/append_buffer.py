"""In-memory buffer of the latest commits, so that followers of the log need not read them back.

A span is served from memory only if this process appended all of it. Erasures are records too and never in the buffer,
so a span whose end was read from the database shows no payload that was erased before that read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from services.audit.domain.log.matcher import Matcher
from services.audit.domain.model import Commit, LoggedRecord, Page, RecordFilter, Span, TreeHead
from services.audit.domain.ports import LogReader

# Enough for what a busy log takes in while its followers rest. Reading older records from the database costs several
# times as much.
BUFFER_BYTES = 4 * 1024 * 1024
PAGE_BYTES = 1024 * 1024
_ALL_RECORDS = RecordFilter()


class AppendBuffer:
    """The latest contiguous commits of this process, up to a size limit."""

    def __init__(self, *, max_bytes: int = BUFFER_BYTES) -> None:
        self._max_bytes = max_bytes
        self._commits: deque[Commit] = deque()
        self._bytes = 0

    def add(self, commit: Commit) -> None:
        """Add a commit and evict the oldest ones over the limit. A gap evicts everything before it."""
        if self._commits and self._commits[-1].end != commit.first_sequence:
            self._commits.clear()
            self._bytes = 0
        self._commits.append(commit)
        self._bytes += commit.payload_bytes
        while self._bytes > self._max_bytes:
            self._bytes -= self._commits.popleft().payload_bytes

    def covers(self, first: int, end: int) -> bool:
        """Return whether all records from `first` to `end` (exclusive) are buffered."""
        commits = self._commits
        return bool(commits) and commits[0].first_sequence <= first and end <= commits[-1].end

    def slices(self, first: int, end: int) -> list[tuple[Commit, range]]:
        """Return the commits with records from `first` to `end` (exclusive), each with the indexes of those records."""
        slices = []
        for commit in self._commits:
            start = commit.first_sequence
            indexes = range(max(first - start, 0), min(end - start, len(commit.entries)))
            if indexes:
                slices.append((commit, indexes))
        return slices


class AppendBufferReader:
    """Serves pages near the end of the log from the buffer, and everything else from another reader. Callers must take
    the end of each span from `head`, read again for each page."""

    def __init__(self, log: LogReader, buffer: AppendBuffer) -> None:
        self._log, self._buffer = log, buffer

    async def head(self) -> TreeHead:
        """Implement `LogReader.head`."""
        return await self._log.head()

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        """Implement `LogReader.get_by_sequence`."""
        return await self._log.get_by_sequence(log_id, sequence)

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        """Implement `LogReader.get_by_record_id`."""
        return await self._log.get_by_record_id(record_id)

    async def page(self, record_filter: RecordFilter, span: Span, limit: int) -> Page:
        """Implement `LogReader.page`."""
        if not span.ascending or not self._buffer.covers(span.first, span.end):
            return await self._log.page(record_filter, span, limit)
        matches = None if record_filter == _ALL_RECORDS else Matcher(record_filter).matches
        bytes_left, records = PAGE_BYTES, list[LoggedRecord]()
        for commit, index in _entries_of(self._buffer.slices(span.first, span.end)):
            if matches is not None and not matches(commit.entries[index]):
                continue
            if bytes_left <= 0 or len(records) == limit:
                return Page(records, more=True)
            records.append(commit.record_at(index))
            bytes_left -= len(records[-1].canonical)
        return Page(records, more=False)


def _entries_of(parts: list[tuple[Commit, range]]) -> Iterator[tuple[Commit, int]]:
    return ((commit, index) for commit, indexes in parts for index in indexes)
