"""Builds inclusion and consistency proofs from stored hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.audit.domain.errors import record_not_found
from services.audit.domain.evidence.errors import condition_error, size_out_of_range
from services.audit.domain.evidence.model import Shard
from services.audit.domain.evidence.ports import ShardStore, TreeStore
from services.audit.domain.log.tenancy import is_visible_to
from services.audit.domain.merkle.merkle import (
    EMPTY_ROOT,
    LeafRange,
    Node,
    consistency_ranges,
    fold_hashes,
    inclusion_ranges,
    perfect_subtrees,
)
from services.audit.domain.model import LoggedRecord
from services.audit.domain.ports import LogReader


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """Proves that a record is in its shard's tree of a given size."""

    shard: int
    sequence: int
    leaf_index: int
    leaf_hash: bytes
    tree_size: int
    root: bytes
    hashes: list[bytes]


@dataclass(frozen=True, slots=True)
class ConsistencyProof:
    """Proves that a shard's tree of the second size extends that of the first."""

    first_size: int
    first_root: bytes
    second_size: int
    second_root: bytes
    hashes: list[bytes]


class Prover:
    """Builds proofs of RFC 6962. It reads only the hashes of the proof, whatever the size of the shard."""

    def __init__(self, log: LogReader, shards: ShardStore, trees: TreeStore) -> None:
        self._log, self._shards, self._trees = log, shards, trees

    async def prove_inclusion(self, sequence_or_id: int | str, tree_size: int, tenant: str = "") -> InclusionProof:
        """Prove that a record is in the tree of this size; 0 means the current size. To a reader of a tenant, records
        of
        others do not exist."""
        record = await self._find_record(sequence_or_id, tenant)
        shard = await self._undropped_shard(record.shard)
        size, leaf = tree_size or shard.size, record.sequence - shard.first_sequence
        if not leaf < size <= shard.size:
            raise size_out_of_range(shard.size)
        root, *path = await self._hashes(shard, [LeafRange(0, size), *inclusion_ranges(leaf, size)])
        return InclusionProof(shard.number, record.sequence, leaf, record.leaf_hash, size, root, path)

    async def prove_consistency(self, number: int, first_size: int, second_size: int) -> ConsistencyProof:
        """Prove that one size of a shard extends a smaller one; 0 as the second size means the current size."""
        shard = await self._undropped_shard(number)
        size = second_size or shard.size
        if not first_size <= size <= shard.size:
            raise size_out_of_range(shard.size)
        spans = [LeafRange(0, first_size), LeafRange(0, size), *consistency_ranges(first_size, size)]
        first_root, root, *path = await self._hashes(shard, spans)
        return ConsistencyProof(first_size, first_root, size, root, path)

    async def _find_record(self, sequence_or_id: int | str, tenant: str) -> LoggedRecord:
        if isinstance(sequence_or_id, str):
            record = await self._log.get_by_record_id(sequence_or_id)
        else:
            head = await self._log.head()
            record = (
                await self._log.get_by_sequence(head.log_id, sequence_or_id) if sequence_or_id < head.size else None
            )
            shard = await self._shards.find_containing(sequence_or_id) if record is None else None
            # The tenant of a dropped record is unknown.
            if shard is not None and shard.drop_time is not None and not tenant:
                raise condition_error("dropped")
        if record is None or not is_visible_to(tenant, record):
            raise record_not_found(str(sequence_or_id))
        return record

    async def _undropped_shard(self, number: int) -> Shard:
        shard = await self._shards.get(number)
        if shard is None:
            raise condition_error("shard_unknown")
        if shard.drop_time is not None:
            raise condition_error("dropped")
        return shard

    async def _hashes(self, shard: Shard, spans: Sequence[LeafRange]) -> list[bytes]:
        nodes = await self._trees.node_hashes(shard, [node for span in spans for node in perfect_subtrees(span)])
        hashes = [hash_of_range(nodes, span) for span in spans]
        if any(digest is None for digest in hashes):
            # A committed hash is missing; VerifyRange finds which.
            raise condition_error("hashes_missing")
        return [digest for digest in hashes if digest is not None]


async def root_at(trees: TreeStore, shard: Shard, size: int) -> bytes | None:
    """Return the root of a shard's tree at an earlier size, from stored hashes; None if a hash is missing."""
    span = LeafRange(0, size)
    return hash_of_range(await trees.node_hashes(shard, perfect_subtrees(span)), span)


def hash_of_range(nodes: Mapping[Node, bytes], span: LeafRange) -> bytes | None:
    """Return the hash of a leaf range; None if a node is missing."""
    hashes = [nodes[node] for node in perfect_subtrees(span) if node in nodes]
    if len(hashes) != len(perfect_subtrees(span)):
        return None
    return fold_hashes(hashes) if hashes else EMPTY_ROOT
