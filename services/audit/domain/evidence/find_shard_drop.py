"""Finds the record of a shard's drop.

Nothing refers to that record, but it is committed together with the drop under the lock of the head. So it is the last
record before the drop time, and log times do not decrease along the log.
"""

from __future__ import annotations

from datetime import datetime

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from services.audit.domain.evidence.model import Leaf, Shard
from services.audit.domain.evidence.ports import ShardStore, TreeStore
from services.audit.domain.merkle.merkle import LeafRange, leaf_hash

# If a clock was set back, the record lies a little earlier; this many records before the expected one are searched.
SEARCH_WINDOW = 2048
_SHARDS_AT_ONCE = 1000
_ARCHIVED_CLASS = b'"shard_archived"'


class DropRecordFinder:
    """Checks that the log recorded the drop of a shard together with the digest of its archive."""

    def __init__(self, shards: ShardStore, trees: TreeStore) -> None:
        self._shards, self._trees = shards, trees

    async def has_drop_record(self, shard: Shard) -> bool:
        """Return whether the drop of a dropped shard is recorded. If the record's own shard was dropped since, only its
        archive could tell; the drop is then accepted; verifying that shard checks its own drop."""
        if shard.drop_time is None:
            return False
        successor = await self._shard_open_at(shard.drop_time, shard.number + 1)
        if successor is None or successor.drop_time is not None:
            return successor is not None
        end = await self._size_at(shard.drop_time, successor)
        leaves = await self._trees.read_leaves(successor, LeafRange(max(0, end - SEARCH_WINDOW), end))
        return any(_records_drop_of(leaf, shard) for leaf in reversed(leaves))

    async def _shard_open_at(self, moment: datetime, first: int) -> Shard | None:
        """Return the shard, from this number on, that was open at a time."""
        open_shard = None
        while page := await self._shards.list_from(first, _SHARDS_AT_ONCE):
            open_shard = next((shard for shard in reversed(page) if shard.open_time <= moment), open_shard)
            first = page[-1].number + 1
        return open_shard

    async def _size_at(self, moment: datetime, shard: Shard) -> int:
        """Return the size of a shard at a time."""
        low, high = 0, shard.size
        while low < high:
            middle = (low + high) // 2
            leaves = await self._trees.read_leaves(shard, LeafRange(middle, middle + 1))
            if leaves and leaves[0].log_time is not None and leaves[0].log_time <= moment:
                low = middle + 1
            else:
                high = middle
        return low


def _records_drop_of(leaf: Leaf, shard: Shard) -> bool:
    if _ARCHIVED_CLASS not in leaf.canonical or leaf_hash(leaf.canonical) != leaf.leaf_hash:
        return False
    try:
        form = parse_object(leaf.canonical)
    except MeshError:
        return False
    archival = {"shard": shard.number, "manifest_digest": shard.manifest_digest, "records_dropped": True}
    origin = (form.get("event_class"), form.get("writer"))
    return origin == ("shard_archived", "audit") and form.get("archival") == archival
