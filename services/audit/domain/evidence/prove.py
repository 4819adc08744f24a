"""Proving what is in a shard's tree, from hashes that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.audit.domain.errors import record_not_found
from services.audit.domain.evidence.errors import refused, size_out_of_range
from services.audit.domain.evidence.model import Shard
from services.audit.domain.evidence.ports import Shards, Trees
from services.audit.domain.merkle.merkle import EMPTY_ROOT, Leaves, Node, consistency, folded, inclusion, perfect
from services.audit.domain.model import LoggedRecord
from services.audit.domain.ports import LogReader


@dataclass(frozen=True, slots=True)
class Inclusion:
    """That a record is in its shard's tree of a given size."""

    shard: int
    sequence: int
    leaf_index: int
    leaf_hash: bytes
    tree_size: int
    root: bytes
    hashes: list[bytes]


@dataclass(frozen=True, slots=True)
class Consistency:
    """That a shard's tree of the second size continues that of the first."""

    first_size: int
    first_root: bytes
    second_size: int
    second_root: bytes
    hashes: list[bytes]


class Prove:
    """Answers with proofs of RFC 6962. It reads what a proof consists of and nothing else, whatever the shard's size."""

    def __init__(self, log: LogReader, shards: Shards, trees: Trees) -> None:
        self._log, self._shards, self._trees = log, shards, trees

    async def inclusion(self, place: int | str, tree_size: int) -> Inclusion:
        """Prove that the record of a sequence or an id is in the tree of this size; 0 for the shard as it is now."""
        record = await self._record(place)
        shard = await self._kept(record.shard)
        size, leaf = tree_size or shard.size, record.sequence - shard.first_sequence
        if not leaf < size <= shard.size:
            raise size_out_of_range(shard.size)
        root, *path = await self._hashes(shard, [Leaves(0, size), *inclusion(leaf, size)])
        return Inclusion(shard.number, record.sequence, leaf, record.leaf_hash, size, root, path)

    async def consistency(self, number: int, first_size: int, second_size: int) -> Consistency:
        """Prove that one size of a shard continues a smaller one; 0 as the second for the shard as it is now."""
        shard = await self._kept(number)
        size = second_size or shard.size
        if not first_size <= size <= shard.size:
            raise size_out_of_range(shard.size)
        spans = [Leaves(0, first_size), Leaves(0, size), *consistency(first_size, size)]
        first_root, root, *path = await self._hashes(shard, spans)
        return Consistency(first_size, first_root, size, root, path)

    async def _record(self, place: int | str) -> LoggedRecord:
        if isinstance(place, str):
            found = await self._log.by_record_id(place)
        else:
            head = await self._log.head()
            found = await self._log.by_sequence(head.log_id, place) if place < head.size else None
            shard = await self._shards.containing(place) if found is None else None
            if shard is not None and shard.drop_time is not None:
                raise refused("dropped")
        if found is None:
            raise record_not_found(str(place))
        return found

    async def _kept(self, number: int) -> Shard:
        shard = await self._shards.shard(number)
        if shard is None:
            raise refused("shard_unknown")
        if shard.drop_time is not None:
            raise refused("dropped")
        return shard

    async def _hashes(self, shard: Shard, spans: Sequence[Leaves]) -> list[bytes]:
        nodes = await self._trees.nodes(shard, [node for span in spans for node in perfect(span)])
        found = [span_hash(nodes, span) for span in spans]
        if any(each is None for each in found):
            # Something that was committed is gone; VerifyRange says what.
            raise refused("hashes_missing")
        return [each for each in found if each is not None]


async def root_at(trees: Trees, shard: Shard, size: int) -> bytes | None:
    """Return the root of a shard's tree at a size that it has reached, from what is stored; None if some of it is missing."""
    span = Leaves(0, size)
    return span_hash(await trees.nodes(shard, perfect(span)), span)


def span_hash(nodes: Mapping[Node, bytes], span: Leaves) -> bytes | None:
    """Return the hash over leaves of a proof, None if a node of them is missing."""
    hashes = [nodes[node] for node in perfect(span) if node in nodes]
    if len(hashes) != len(perfect(span)):
        return None
    return folded(hashes) if hashes else EMPTY_ROOT
