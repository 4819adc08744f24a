"""One pass over the records of an export, with a tree for each thing that claims to know their hashes.

A line has data, from which a leaf hash is computed; it names a leaf hash itself; and the list of leaves names one, too. In
an honest export the three agree and share one tree. From the first place where one differs it grows a tree of its own, so
that afterwards the one that hashes to the signed root tells which of the others was changed, and where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from toolmesh_sdk.audit.format.events import Line, RecordLocation, attributes_of
from toolmesh_sdk.audit.format.log_events import Archival, ShardLink, archived_shard, erased_payload, previous_shard
from toolmesh_sdk.audit.format.merkle import Frontier

DATA, CLAIMED, LISTED = "data", "claimed", "listed"
# Stands for the hash of a line that cannot be read; nothing hashes to it.
NO_HASH = bytes(32)


@dataclass(slots=True)
class Tree:
    """A growing tree that remembers how it stood before its last expected leaf."""

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
        """Return another that grows by itself."""
        before = self.before_last.copy() if self.before_last else None
        return Tree(self.frontier.copy(), self.expected, self.count, self.last, before)


@dataclass(slots=True)
class ExportScanResult:
    """What one pass found."""

    trees: dict[str, Tree]
    differs: dict[str, int] = field(default_factory=dict)
    """Where a source first differs from the data, counted from the first record."""
    attributes_differ: int | None = None
    """The first line whose attributes are not those of its record and place."""
    sequence_there: int | None = None
    """The sequence that this line names."""
    roots: dict[int, bytes] = field(default_factory=dict)
    """The roots of the data's tree at the sizes that were asked for."""
    erased: dict[int, bytes] = field(default_factory=dict)
    """Sequence and leaf hash of each record without a payload."""
    explained: dict[int, bytes] = field(default_factory=dict)
    """Sequence and leaf hash of each payload that a record says was erased."""
    archived: set[Archival] = field(default_factory=set)
    """The archives that records note."""
    link: ShardLink | None = None
    """The shard before, if the first record names it."""

    def tree(self, source: str) -> Tree:
        """Return the tree of a source: its own, or the one of the data if they never differed."""
        return self.trees.get(source, self.trees[DATA])


class ExportScan:
    """Walks through the records of an export from a frontier that stands before the first of them."""

    def __init__(self, start: Frontier, first: RecordLocation, expected: int, sizes: Iterable[int] = ()) -> None:
        self._first = first
        self._sizes = set(sizes)
        self.scan = ExportScanResult({DATA: Tree(start.copy(), expected)})

    def run(self, lines: Iterator[Line | None], listed: Iterator[bytes]) -> ExportScanResult:
        """Make the pass."""
        scan, data = self.scan, self.scan.trees[DATA]
        ended = object()
        if data.frontier.size in self._sizes:
            scan.roots[data.frontier.size] = data.frontier.root()
        for index, (line, leaf) in enumerate(zip_longest(lines, listed, fillvalue=ended)):
            here = None if line is ended else self._look(index, line)  # type: ignore[arg-type]
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

    def _look(self, index: int, line: Line | None) -> bytes:
        if line is None:
            self._note_attributes(index, None)
            return NO_HASH
        scan, place = self.scan, RecordLocation(self._first.log, self._first.shard, self._first.sequence + index)
        if not line.exact and line.attributes != attributes_of(place, line.claimed, line.form):
            self._note_attributes(index, line)
        if line.form is None:
            scan.erased[place.sequence] = line.leaf
        elif "erasure" in line.form and (erased := erased_payload(line.form)) is not None:
            scan.explained[erased[0]] = erased[1]
        elif "archival" in line.form and (archival := archived_shard(line.form)) is not None:
            scan.archived.add(archival)
        if index == 0:
            scan.link = previous_shard(line.form)
        return line.leaf

    def _note_attributes(self, index: int, line: Line | None) -> None:
        if self.scan.attributes_differ is not None:
            return
        self.scan.attributes_differ = index
        said = line.attributes.get("sequence") if line else None
        self.scan.sequence_there = int(said) if isinstance(said, str) and said.isdigit() else None
