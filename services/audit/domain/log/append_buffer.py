"""What this process appended last, still in memory: whoever follows the log closely need not read it back.

A span is answered from memory only if every record of it, up to its end, was appended here and nothing came between. An
erasure is a record too and is never among these, so a payload that was erased by then is not in the answer: whoever learned
the end of the span from the database sees what a look into the database would have shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

from services.audit.domain.model import LoggedRecord, Page, RecordFilter, Span, Stored, TreeHead
from services.audit.domain.ports import LogReader

# As much as a busy log takes in while its followers rest: who falls out of this reads from the database, which costs several times as much.
RECENT_BYTES = 4 * 1024 * 1024
PAGE_BYTES = 1024 * 1024
_EVERYTHING = RecordFilter()


class Recent:
    """The last commits of this process that lie side by side, as many as a bounded weight allows."""

    def __init__(self, *, weight: int = RECENT_BYTES) -> None:
        self._limit = weight
        self._commits: deque[Stored] = deque()
        self._weight = 0

    def appended(self, stored: Stored) -> None:
        """Remember a commit, and forget the oldest ones for it. After a gap, all others are forgotten."""
        if self._commits and self._commits[-1].end != stored.first_sequence:
            self._commits.clear()
            self._weight = 0
        self._commits.append(stored)
        self._weight += stored.weight
        while self._weight > self._limit:
            self._weight -= self._commits.popleft().weight

    def holds(self, first: int, end: int) -> bool:
        """Say whether all records from `first` to just before `end` are here."""
        commits = self._commits
        return bool(commits) and commits[0].first_sequence <= first and end <= commits[-1].end

    def between(self, first: int, end: int) -> list[tuple[Stored, range]]:
        """Return the commits that hold records from `first` to just before `end`, each with the places of those in it."""
        found = []
        for stored in self._commits:
            begin = stored.first_sequence
            places = range(max(first - begin, 0), min(end - begin, len(stored.entries)))
            if places:
                found.append((stored, places))
        return found


class RecentReader:
    """A reader that remembers: answers from memory whoever reads on near the end of the log, and asks another for the rest.
    For those who take the end of a span from `head`, anew for each page."""

    def __init__(self, log: LogReader, recent: Recent) -> None:
        self._log, self._recent = log, recent

    async def head(self) -> TreeHead:
        """Keep the promise of the port."""
        return await self._log.head()

    async def by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        """Keep the promise of the port."""
        return await self._log.by_sequence(log_id, sequence)

    async def by_record_id(self, record_id: str) -> LoggedRecord | None:
        """Keep the promise of the port."""
        return await self._log.by_record_id(record_id)

    async def page(self, wanted: RecordFilter, span: Span, limit: int) -> Page:
        """Keep the promise of the port."""
        if wanted != _EVERYTHING or not span.ascending or not self._recent.holds(span.first, span.end):
            return await self._log.page(wanted, span, limit)
        end, room, found = min(span.first + limit, span.end), PAGE_BYTES, []
        for logged in _logged(self._recent.between(span.first, end)):
            if room <= 0:
                break
            found.append(logged)
            room -= len(logged.canonical)
        return Page(found, more=span.first + len(found) < span.end)


def _logged(parts: list[tuple[Stored, range]]) -> Iterator[LoggedRecord]:
    return chain.from_iterable(map(stored.logged, places) for stored, places in parts)
