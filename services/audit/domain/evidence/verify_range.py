"""Recomputing a part of the log and comparing it with all that the log has stored about it.

Leaves are checked against the bytes, blocks of 256 leaves against the subtree that was stored when they were committed, every
stored level against the one below, and the top against the root of the head or the closed shard. Checkpoints in between are
checked where they fall. The range is widened to whole blocks, so that each block can be compared. The columns that records are
found by are compared with the bytes; that is said last, because it means little where the bytes themselves were changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from services.audit.domain.evidence.find_drop import FindDrop
from services.audit.domain.evidence.model import BadPlace, Defect, Leaf, Shard, Verdict
from services.audit.domain.evidence.ports import CheckpointStore, Index, Shards, SignatureCheck, Trees
from services.audit.domain.evidence.prove import root_at
from services.audit.domain.merkle.merkle import STORED_LEVELS, CompactRange, Leaves, Node, leaf_hash, perfect
from services.audit.domain.merkle.note import Origin, checkpoint_text, key_id, signature_of
from services.audit.domain.model import Entry, SignedCheckpoint
from services.audit.domain.ports import CheckpointKey, LogReader

MAX_RECORDS = 100_000
BLOCK = 1 << STORED_LEVELS
CHUNK = 8 * BLOCK


class VerifyRange:
    """Says whether a part of the log is what it was, or names the first place that is not."""

    def __init__(
        self,
        log: LogReader,
        shards: Shards,
        trees: Trees,
        store: CheckpointStore,
        key: CheckpointKey,
        check: SignatureCheck,
        origin: Origin,
        index: Index,
    ) -> None:
        self._log, self._shards, self._trees, self._store = log, shards, trees, store
        self._key, self._check, self._origin, self._index = key, check, origin, index
        self._find_drop = FindDrop(shards, trees)

    async def __call__(self, first: int, end: int) -> Verdict:
        """Verify from `first` to just before `end`, or to the end of the log if that is 0; at most 100,000 records."""
        size = (await self._log.head()).size
        end = min(end or size, size, first + MAX_RECORDS)
        position = first
        while position < end:
            shard = await self._shards.containing(position)
            if shard is None:
                return Verdict(position, BadPlace(position, end, Defect.SEQUENCE_BROKEN))
            upto = min(end, shard.end_sequence)
            dropped = shard.drop_time is not None
            bad = await (self._dropped(shard) if dropped else self._shard(shard, _widened(shard, position, upto)))
            if bad is not None:
                return Verdict(bad.first, bad)
            position = upto
        return Verdict(max(end, first))

    async def _dropped(self, shard: Shard) -> BadPlace | None:
        """Look for what says that the shard was dropped. The records are in its archive, with the means to verify them."""
        if not await self._find_drop(shard):
            return _bad(shard, Leaves(0, shard.size), Defect.SHARD_MISSING)
        last = await self._store.find(shard.number, shard.size)
        if last is not None and (last.root != shard.root or not self._signed(shard, last)):
            return _bad(shard, Leaves(0, shard.size), Defect.CHECKPOINT_BROKEN)
        return None

    async def _shard(self, shard: Shard, span: Leaves) -> BadPlace | None:
        async for bad in self._defects(shard, span):
            return bad
        return None

    async def _defects(self, shard: Shard, span: Leaves) -> AsyncIterator[BadPlace]:
        stray = await self._stray(shard)
        if stray is not None:
            yield stray
        hashes = await self._trees.nodes(shard, perfect(Leaves(0, span.first)))
        if len(hashes) != span.first.bit_count():
            yield _bad(shard, Leaves(0, span.first), Defect.LEAVES_CHANGED)
            return
        tree = CompactRange(span.first, tuple(hashes[node] for node in perfect(Leaves(0, span.first))))
        misfiled: Leaf | None = None
        for start in range(span.first, span.end, CHUNK):
            part = Leaves(start, min(start + CHUNK, span.end))
            leaves = await self._trees.leaves(shard, part)
            async for bad in self._records(shard, part, leaves):
                yield bad
            misfiled = misfiled or next((leaf for leaf in leaves if not self._filed(leaf)), None)
            grown, completed = tree.grown(leaf.leaf_hash for leaf in leaves)
            async for bad in self._blocks(shard, completed):
                yield bad
            async for bad in self._checkpoints(shard, tree, leaves):
                yield bad
            tree = grown
        async for bad in self._levels(shard, span):
            yield bad
        if await root_at(self._trees, shard, shard.size) != shard.root:
            last = span.end - span.end % BLOCK if span.end == shard.size else 0
            yield _bad(shard, Leaves(last, shard.size), Defect.ROOT_BROKEN)
        if misfiled is not None:
            yield _one(misfiled, Defect.INDEX_CHANGED)

    async def _stray(self, shard: Shard) -> BadPlace | None:
        """Look for records under this shard that are not within it. More may have come behind an open one meanwhile."""
        found = await self._trees.extremes(shard.number)
        lowest, highest = found or (shard.first_sequence, shard.end_sequence - 1)
        end = shard.end_sequence if shard.close_time is not None else (await self._log.head()).size
        if lowest < shard.first_sequence:
            return BadPlace(lowest, lowest + 1, Defect.SEQUENCE_BROKEN)
        if highest >= end:
            return BadPlace(highest, highest + 1, Defect.SEQUENCE_BROKEN)
        return None

    async def _records(self, shard: Shard, part: Leaves, leaves: Sequence[Leaf]) -> AsyncIterator[BadPlace]:
        expected = shard.first_sequence + part.first
        for leaf in leaves:
            if leaf.sequence != expected:
                break
            if leaf.canonical and leaf_hash(leaf.canonical) != leaf.leaf_hash:
                yield _one(leaf, Defect.PAYLOAD_CHANGED)
            if not leaf.canonical and not await self._erased(leaf):
                yield _one(leaf, Defect.PAYLOAD_MISSING)
            if leaf.sequence == shard.first_sequence and shard.number and not await self._linked(shard, leaf):
                yield _one(leaf, Defect.LINK_BROKEN)
            expected += 1
        if expected < shard.first_sequence + part.end:
            yield BadPlace(expected, expected + 1, Defect.SEQUENCE_BROKEN)

    def _filed(self, leaf: Leaf) -> bool:
        """Say whether a record is found by what it says and, once its payload was erased, by nothing but its id and place."""
        found_by = leaf.found_by
        if leaf.canonical or found_by is None:
            return found_by is not None and found_by == self._index(leaf.canonical)
        return leaf.log_time is not None and found_by == _emptied(found_by.record_id, leaf.log_time)

    async def _erased(self, leaf: Leaf) -> bool:
        head = await self._log.head()
        record = await self._log.by_sequence(head.log_id, leaf.sequence)
        by = None if record is None or record.erased_by is None else record.erased_by
        evidence = None if by is None else await self._log.by_sequence(head.log_id, by)
        form = _form(b"" if evidence is None else evidence.canonical)
        said = form.get("erasure")
        return (
            (form.get("event_class"), form.get("writer")) == ("payload_erased", "audit")
            and isinstance(said, dict)
            and (said.get("sequence"), said.get("leaf_hash")) == (leaf.sequence, leaf.leaf_hash.hex())
        )

    async def _linked(self, shard: Shard, leaf: Leaf) -> bool:
        previous, form = await self._shards.shard(shard.number - 1), _form(leaf.canonical)
        if previous is None:
            return False
        expected = {
            "number": previous.number,
            "first_sequence": previous.first_sequence,
            "tree_size": previous.size,
            "root_hash": previous.root.hex(),
            "origin": self._origin(previous.log_id, previous.number),
        }
        written = (form.get("event_class"), form.get("writer"))
        return written == ("shard_opened", "audit") and form.get("previous_shard") == expected

    async def _blocks(self, shard: Shard, completed: Sequence[tuple[Node, bytes]]) -> AsyncIterator[BadPlace]:
        blocks = [(node, found) for node, found in completed if node.level == STORED_LEVELS]
        if not blocks:
            return
        places = range(blocks[0][0].place, blocks[-1][0].place + 1)
        stored = await self._trees.stored(shard, STORED_LEVELS, places)
        for node, found in blocks:
            if stored.get(node.place) != found:
                yield _bad(shard, _leaves_of(node), Defect.LEAVES_CHANGED)

    async def _levels(self, shard: Shard, span: Leaves) -> AsyncIterator[BadPlace]:
        """Compare every stored node above the blocks with the nodes below it."""
        level = 2 * STORED_LEVELS
        while shard.size >> level:
            places = range(span.first >> level, min(((span.end - 1) >> level) + 1, shard.size >> level))
            stored = await self._trees.stored(shard, level, places)
            for place in places:
                below = range(place * BLOCK, (place + 1) * BLOCK)
                found = await self._trees.stored(shard, level - STORED_LEVELS, below)
                computed = CompactRange().extended(found.get(each, b"") for each in below).root()
                if stored.get(place) != computed:
                    yield _bad(shard, _leaves_of(Node(level, place)), Defect.LEAVES_CHANGED)
            level += STORED_LEVELS

    async def _checkpoints(self, shard: Shard, tree: CompactRange, leaves: Sequence[Leaf]) -> AsyncIterator[BadPlace]:
        sizes = range(tree.size + 1, tree.size + len(leaves) + 1)
        stored = await self._store.page(shard.number, sizes, len(sizes), ascending=True)
        for checkpoint, root in _roots(tree, leaves, stored):
            if root != checkpoint.root or not self._signed(shard, checkpoint):
                yield _bad(shard, Leaves(0, checkpoint.size), Defect.CHECKPOINT_BROKEN)

    def _signed(self, shard: Shard, checkpoint: SignedCheckpoint) -> bool:
        origin, public_key = self._origin(shard.log_id, shard.number), self._key.public_key
        text = checkpoint_text(origin, checkpoint.size, checkpoint.root)
        if not checkpoint.note.startswith(text + "\n"):
            return False
        # One that an earlier key signed can only be verified by who has that key.
        if checkpoint.key_id != key_id(origin, public_key):
            return True
        return self._check(public_key, signature_of(checkpoint.note), text.encode())


def _roots(
    tree: CompactRange, leaves: Sequence[Leaf], checkpoints: Sequence[SignedCheckpoint]
) -> Iterator[tuple[SignedCheckpoint, bytes]]:
    """Yield each checkpoint with the root that the leaves have at its size."""
    begin = tree.size
    for checkpoint in checkpoints:
        tree = tree.extended(leaf.leaf_hash for leaf in leaves[tree.size - begin : checkpoint.size - begin])
        yield checkpoint, tree.root()


def _widened(shard: Shard, first: int, end: int) -> Leaves:
    begin, behind = first - shard.first_sequence, end - shard.first_sequence
    return Leaves(begin - begin % BLOCK, min(behind + -behind % BLOCK, shard.size))


def _leaves_of(node: Node) -> Leaves:
    return Leaves(node.place << node.level, (node.place + 1) << node.level)


def _bad(shard: Shard, leaves: Leaves, defect: Defect) -> BadPlace:
    return BadPlace(shard.first_sequence + leaves.first, shard.first_sequence + leaves.end, defect)


def _one(leaf: Leaf, defect: Defect) -> BadPlace:
    return BadPlace(leaf.sequence, leaf.sequence + 1, defect)


def _emptied(record_id: str, log_time: datetime) -> Entry:
    return Entry(record_id, b"", log_time, "", "", "", "", "", "", "")


def _form(canonical: bytes) -> dict[str, object]:
    try:
        return parse_object(canonical)
    except MeshError:
        return {}
