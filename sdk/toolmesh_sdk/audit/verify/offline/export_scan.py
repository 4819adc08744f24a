"""Scans the records of an export once, and builds a Merkle tree for each source of leaf hashes.

The sources are the data of a line, the hash that the line claims, and the list of leaves. In an unmodified export they
agree and share one tree. A source that differs gets its own tree from there on. The tree that hashes to the signed root
then shows which sources were changed, and where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from toolmesh_sdk.audit.format.events import Line, RecordLocation, attributes_of
from toolmesh_sdk.audit.format.log_events import Archival, ShardLink, archived_shard, erased_payload, previous_shard
from toolmesh_sdk.audit.format.merkle import Frontier

DATA, CLAIMED, LISTED = "data", "claimed", "listed"
# The hash of an unreadable line; nothing hashes to it.
NO_HASH = bytes(32)


@dataclass(slots=True)
class Tree:
    """A growing tree that keeps its state before the last expected leaf."""

    frontier: Frontier
    expected: int
    count: int = 0
    last: bytes = b""
    before_last: Frontier | None = None

    def add(self, leaf: bytes) -> None:
        """Add a leaf."""
        if self.count == self.expected - 1:
            self.before_last = self.frontier.copy()
        self.frontier.append(leaf)
        self.count += 1
        self.last = leaf

    def copy(self) -> Tree:
        """Return an independent copy."""
        before = self.before_last.copy() if self.before_last else None
        return Tree(self.frontier.copy(), self.expected, self.count, self.last, before)


@dataclass(slots=True)
class ExportScanResult:
    """The result of a scan."""

    trees: dict[str, Tree]
    differs: dict[str, int] = field(default_factory=dict)
    """The index where a source first differs from the data."""
    attributes_differ: int | None = None
    """The index of the first line whose attributes do not match its record and location."""
    claimed_sequence: int | None = None
    """The sequence that this line claims."""
    roots: dict[int, bytes] = field(default_factory=dict)
    """The roots of the data tree at the requested sizes."""
    erased: dict[int, bytes] = field(default_factory=dict)
    """Sequence and leaf hash of each record without a payload."""
    explained: dict[int, bytes] = field(default_factory=dict)
    """Sequence and leaf hash of each payload that a record reports as erased."""
    archived: set[Archival] = field(default_factory=set)
    """The archives that records report."""
    link: ShardLink | None = None
    """The link to the previous shard, if the first record has one."""

    def tree(self, source: str) -> Tree:
        """Return the tree of a source; the data tree if they never differed."""
        return self.trees.get(source, self.trees[DATA])


class ExportScan:
    """Scans the records of an export, starting from the frontier before the first record."""

    def __init__(self, start: Frontier, first: RecordLocation, expected: int, sizes: Iterable[int] = ()) -> None:
        self._first = first
        self._sizes = set(sizes)
        self.scan = ExportScanResult({DATA: Tree(start.copy(), expected)})

    def run(self, lines: Iterator[Line | None], listed: Iterator[bytes]) -> ExportScanResult:
        """Scan all lines and listed leaves."""
        scan, data = self.scan, self.scan.trees[DATA]
        ended = object()
        if data.frontier.size in self._sizes:
            scan.roots[data.frontier.size] = data.frontier.root()
        for index, (line, leaf) in enumerate(zip_longest(lines, listed, fillvalue=ended)):
            here = None if line is ended else self._inspect(index, line)  # type: ignore[arg-type]
            claimed = None if here is None else line.claimed if isinstance(line, Line) else NO_HASH
            self._compare(CLAIMED, index, here, claimed)
            self._compare(LISTED, index, here, None if leaf is ended else leaf)  # type: ignore[arg-type]
            if here is not None:
                data.add(here)
                if data.frontier.size in self._sizes:
                    scan.roots[data.frontier.size] = data.frontier.root()
        return scan

    def _compare(self, source: str, index: int, here: bytes | None, there: bytes | None) -> None:
        scan = self.scan
        if source not in scan.trees:
            if here == there:
                return
            scan.trees[source] = scan.trees[DATA].copy()
            scan.differs[source] = index
        if there is not None:
            scan.trees[source].add(there)

    def _inspect(self, index: int, line: Line | None) -> bytes:
        if line is None:
            self._record_mismatch(index, None)
            return NO_HASH
        scan, location = self.scan, RecordLocation(self._first.log, self._first.shard, self._first.sequence + index)
        if not line.exact and line.attributes != attributes_of(location, line.claimed, line.form):
            self._record_mismatch(index, line)
        if line.form is None:
            scan.erased[location.sequence] = line.leaf
        elif "erasure" in line.form and (erased := erased_payload(line.form)) is not None:
            scan.explained[erased[0]] = erased[1]
        elif "archival" in line.form and (archival := archived_shard(line.form)) is not None:
            scan.archived.add(archival)
        if index == 0:
            scan.link = previous_shard(line.form)
        return line.leaf

    def _record_mismatch(self, index: int, line: Line | None) -> None:
        if self.scan.attributes_differ is not None:
            return
        self.scan.attributes_differ = index
        claimed = line.attributes.get("sequence") if line else None
        self.scan.claimed_sequence = int(claimed) if isinstance(claimed, str) and claimed.isdigit() else None
