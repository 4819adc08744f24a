"""Recomputes a part of the log and compares it with everything stored about it.

Leaf hashes are checked against the bytes, blocks of 256 leaves against the stored subtrees, every stored level against
the level below, and the top against the root of the head or of the closed shard. Checkpoints inside the range are
checked too. The range is widened to whole blocks. Index columns are compared with the bytes last, because they mean
little where the bytes were changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from services.audit.domain.evidence.find_shard_drop import DropRecordFinder
from services.audit.domain.evidence.model import Defect, DefectRange, Leaf, Shard, VerificationResult
from services.audit.domain.evidence.ports import CheckpointStore, EntryDecoder, ShardStore, SignatureVerifier, TreeStore
from services.audit.domain.evidence.prove import root_at
from services.audit.domain.merkle.merkle import (
    STORED_LEVELS,
    CompactRange,
    LeafRange,
    Node,
    leaf_hash,
    perfect_subtrees,
)
from services.audit.domain.merkle.note import CheckpointKey, Origin, checkpoint_text, key_id, signatures_of
from services.audit.domain.model import Entry, SignedCheckpoint
from services.audit.domain.ports import LogReader

MAX_RECORDS = 100_000
BLOCK = 1 << STORED_LEVELS
CHUNK = 8 * BLOCK


class VerifyRange:
    """Verifies a part of the log, or names the first defect."""

    def __init__(
        self,
        log: LogReader,
        shards: ShardStore,
        trees: TreeStore,
        store: CheckpointStore,
        key: CheckpointKey,
        verify_signature: SignatureVerifier,
        origin: Origin,
        decode_entry: EntryDecoder,
    ) -> None:
        self._log, self._shards, self._trees, self._store = log, shards, trees, store
        self._key, self._verify_signature, self._origin, self._decode_entry = (
            key,
            verify_signature,
            origin,
            decode_entry,
        )
        self._drop_records = DropRecordFinder(shards, trees)

    async def verify(self, first: int, end: int) -> VerificationResult:
        """Verify from `first` to `end` (exclusive; 0: the end of the log), at most 100,000 records."""
        size = (await self._log.head()).size
        end = min(end or size, size, first + MAX_RECORDS)
        position = first
        while position < end:
            shard = await self._shards.find_containing(position)
            if shard is None:
                return VerificationResult(position, DefectRange(position, end, Defect.SEQUENCE_BROKEN))
            upto = min(end, shard.end_sequence)
            dropped = shard.drop_time is not None
            span = _widen_to_blocks(shard, position, upto)
            defect = await (self._check_dropped(shard) if dropped else self._first_defect(shard, span))
            if defect is not None:
                return VerificationResult(defect.first, defect)
            position = upto
        return VerificationResult(max(end, first))

    async def _check_dropped(self, shard: Shard) -> DefectRange | None:
        """Check that the drop is recorded. The records themselves are verified in the archive."""
        if not await self._drop_records.has_drop_record(shard):
            return _range_defect(shard, LeafRange(0, shard.size), Defect.SHARD_MISSING)
        last = await self._store.find(shard.number, shard.size)
        if last is not None and (last.root != shard.root or not self._signature_valid(shard, last)):
            return _range_defect(shard, LeafRange(0, shard.size), Defect.CHECKPOINT_BROKEN)
        return None

    async def _first_defect(self, shard: Shard, span: LeafRange) -> DefectRange | None:
        async for defect in self._find_defects(shard, span):
            return defect
        return None

    async def _find_defects(self, shard: Shard, span: LeafRange) -> AsyncIterator[DefectRange]:
        stray = await self._find_stray_record(shard)
        if stray is not None:
            yield stray
        hashes = await self._trees.node_hashes(shard, perfect_subtrees(LeafRange(0, span.first)))
        if len(hashes) != span.first.bit_count():
            yield _range_defect(shard, LeafRange(0, span.first), Defect.LEAVES_CHANGED)
            return
        tree = CompactRange(span.first, tuple(hashes[node] for node in perfect_subtrees(LeafRange(0, span.first))))
        misfiled: Leaf | None = None
        for start in range(span.first, span.end, CHUNK):
            part = LeafRange(start, min(start + CHUNK, span.end))
            leaves = await self._trees.read_leaves(shard, part)
            async for defect in self._check_records(shard, part, leaves):
                yield defect
            misfiled = misfiled or next((leaf for leaf in leaves if not self._index_matches(leaf)), None)
            grown, completed = tree.grow(leaf.leaf_hash for leaf in leaves)
            async for defect in self._check_blocks(shard, completed):
                yield defect
            async for defect in self._check_checkpoints(shard, tree, leaves):
                yield defect
            tree = grown
        async for defect in self._check_levels(shard, span):
            yield defect
        if await root_at(self._trees, shard, shard.size) != shard.root:
            last = span.end - span.end % BLOCK if span.end == shard.size else 0
            yield _range_defect(shard, LeafRange(last, shard.size), Defect.ROOT_BROKEN)
        if misfiled is not None:
            yield _record_defect(misfiled, Defect.INDEX_CHANGED)

    async def _find_stray_record(self, shard: Shard) -> DefectRange | None:
        """Look for records stored in this shard but outside its range. An open shard may have grown meanwhile."""
        bounds = await self._trees.sequence_bounds(shard.number)
        lowest, highest = bounds or (shard.first_sequence, shard.end_sequence - 1)
        end = shard.end_sequence if shard.close_time is not None else (await self._log.head()).size
        if lowest < shard.first_sequence:
            return DefectRange(lowest, lowest + 1, Defect.SEQUENCE_BROKEN)
        if highest >= end:
            return DefectRange(highest, highest + 1, Defect.SEQUENCE_BROKEN)
        return None

    async def _check_records(self, shard: Shard, part: LeafRange, leaves: Sequence[Leaf]) -> AsyncIterator[DefectRange]:
        expected = shard.first_sequence + part.first
        for leaf in leaves:
            if leaf.sequence != expected:
                break
            if leaf.canonical and leaf_hash(leaf.canonical) != leaf.leaf_hash:
                yield _record_defect(leaf, Defect.PAYLOAD_CHANGED)
            if not leaf.canonical and not await self._erasure_recorded(leaf):
                yield _record_defect(leaf, Defect.PAYLOAD_MISSING)
            if leaf.sequence == shard.first_sequence and shard.number and not await self._link_matches(shard, leaf):
                yield _record_defect(leaf, Defect.LINK_BROKEN)
            expected += 1
        if expected < shard.first_sequence + part.end:
            yield DefectRange(expected, expected + 1, Defect.SEQUENCE_BROKEN)

    def _index_matches(self, leaf: Leaf) -> bool:
        """Return whether the index columns match the bytes. An erased record has only its id and times."""
        index_entry = leaf.index_entry
        if leaf.canonical or index_entry is None:
            return index_entry is not None and index_entry == self._decode_entry(leaf.canonical)
        return leaf.log_time is not None and index_entry == _erased_entry(index_entry.record_id, leaf.log_time)

    async def _erasure_recorded(self, leaf: Leaf) -> bool:
        head = await self._log.head()
        record = await self._log.get_by_sequence(head.log_id, leaf.sequence)
        erased_by = None if record is None or record.erased_by is None else record.erased_by
        erasure_record = None if erased_by is None else await self._log.get_by_sequence(head.log_id, erased_by)
        form = _parse_form(b"" if erasure_record is None else erasure_record.canonical)
        erasure = form.get("erasure")
        return (
            (form.get("event_class"), form.get("writer")) == ("payload_erased", "audit")
            and isinstance(erasure, dict)
            and (erasure.get("sequence"), erasure.get("leaf_hash")) == (leaf.sequence, leaf.leaf_hash.hex())
        )

    async def _link_matches(self, shard: Shard, leaf: Leaf) -> bool:
        previous, form = await self._shards.get(shard.number - 1), _parse_form(leaf.canonical)
        if previous is None:
            return False
        expected = {
            "number": previous.number,
            "first_sequence": previous.first_sequence,
            "tree_size": previous.size,
            "root_hash": previous.root.hex(),
            "origin": self._origin.of_shard(previous.log_id, previous.number),
        }
        origin_fields = (form.get("event_class"), form.get("writer"))
        return origin_fields == ("shard_opened", "audit") and form.get("previous_shard") == expected

    async def _check_blocks(self, shard: Shard, completed: Sequence[tuple[Node, bytes]]) -> AsyncIterator[DefectRange]:
        blocks = [(node, computed) for node, computed in completed if node.level == STORED_LEVELS]
        if not blocks:
            return
        offsets = range(blocks[0][0].offset, blocks[-1][0].offset + 1)
        stored = await self._trees.stored_hashes(shard, STORED_LEVELS, offsets)
        for node, computed in blocks:
            if stored.get(node.offset) != computed:
                yield _range_defect(shard, _leaves_under(node), Defect.LEAVES_CHANGED)

    async def _check_levels(self, shard: Shard, span: LeafRange) -> AsyncIterator[DefectRange]:
        """Compare every stored node above the blocks with the nodes below it."""
        level = 2 * STORED_LEVELS
        while shard.size >> level:
            offsets = range(span.first >> level, min(((span.end - 1) >> level) + 1, shard.size >> level))
            stored = await self._trees.stored_hashes(shard, level, offsets)
            for offset in offsets:
                below = range(offset * BLOCK, (offset + 1) * BLOCK)
                children = await self._trees.stored_hashes(shard, level - STORED_LEVELS, below)
                computed = CompactRange().extend(children.get(child, b"") for child in below).root()
                if stored.get(offset) != computed:
                    yield _range_defect(shard, _leaves_under(Node(level, offset)), Defect.LEAVES_CHANGED)
            level += STORED_LEVELS

    async def _check_checkpoints(
        self, shard: Shard, tree: CompactRange, leaves: Sequence[Leaf]
    ) -> AsyncIterator[DefectRange]:
        sizes = range(tree.size + 1, tree.size + len(leaves) + 1)
        stored = await self._store.page(shard.number, sizes, len(sizes), ascending=True)
        for checkpoint, root in _roots_at(tree, leaves, stored):
            if root != checkpoint.root or not self._signature_valid(shard, checkpoint):
                yield _range_defect(shard, LeafRange(0, checkpoint.size), Defect.CHECKPOINT_BROKEN)

    def _signature_valid(self, shard: Shard, checkpoint: SignedCheckpoint) -> bool:
        origin, public_key = self._origin.of_shard(shard.log_id, shard.number), self._key.public_key
        text = checkpoint_text(origin, checkpoint.size, checkpoint.root)
        if not checkpoint.note.startswith(text + "\n"):
            return False
        # A signature by an earlier key can only be verified with that key.
        if checkpoint.key_id != key_id(origin, public_key):
            return True
        signatures = signatures_of(checkpoint.note)
        return bool(signatures) and all(
            self._verify_signature(public_key, signature, text.encode()) for signature in signatures
        )


def _roots_at(
    tree: CompactRange, leaves: Sequence[Leaf], checkpoints: Sequence[SignedCheckpoint]
) -> Iterator[tuple[SignedCheckpoint, bytes]]:
    """Yield each checkpoint with the recomputed root at its size."""
    begin = tree.size
    for checkpoint in checkpoints:
        tree = tree.extend(leaf.leaf_hash for leaf in leaves[tree.size - begin : checkpoint.size - begin])
        yield checkpoint, tree.root()


def _widen_to_blocks(shard: Shard, first: int, end: int) -> LeafRange:
    first_leaf, end_leaf = first - shard.first_sequence, end - shard.first_sequence
    return LeafRange(first_leaf - first_leaf % BLOCK, min(end_leaf + -end_leaf % BLOCK, shard.size))


def _leaves_under(node: Node) -> LeafRange:
    return LeafRange(node.offset << node.level, (node.offset + 1) << node.level)


def _range_defect(shard: Shard, leaves: LeafRange, defect: Defect) -> DefectRange:
    return DefectRange(shard.first_sequence + leaves.first, shard.first_sequence + leaves.end, defect)


def _record_defect(leaf: Leaf, defect: Defect) -> DefectRange:
    return DefectRange(leaf.sequence, leaf.sequence + 1, defect)


def _erased_entry(record_id: str, log_time: datetime) -> Entry:
    return Entry(record_id, b"", log_time, "", "", "", "", "", "", "")


def _parse_form(canonical: bytes) -> dict[str, object]:
    try:
        return parse_object(canonical)
    except MeshError:
        return {}
