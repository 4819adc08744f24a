"""Finding the record that says that a shard was dropped.

Nothing points to it, but it was committed together with the drop, under the lock of the head. So it is the last record that
the log took before the drop, and the moments at which it took records do not go back along the log.
"""

from __future__ import annotations

from datetime import datetime

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from services.audit.domain.evidence.model import Leaf, Shard
from services.audit.domain.evidence.ports import Shards, Trees
from services.audit.domain.merkle.merkle import Leaves, leaf_hash

# Where a clock was set back, the place is a little off; so many records before it are looked at as well.
NEARBY = 2048
_SHARDS_AT_ONCE = 1000
_SAYS_SO = b'"shard_archived"'


class FindDrop:
    """Says whether the log records that it dropped a shard, and which archive it noted then."""

    def __init__(self, shards: Shards, trees: Trees) -> None:
        self._shards, self._trees = shards, trees

    async def __call__(self, shard: Shard) -> bool:
        """Say so of a shard that is said to be dropped. Where the record itself was dropped since, only its archive can tell;
        that one is then believed as far as the drop of its own shard is recorded."""
        if shard.drop_time is None:
            return False
        holder = await self._open_at(shard.drop_time, shard.number + 1)
        if holder is None or holder.drop_time is not None:
            return holder is not None
        end = await self._taken_by(shard.drop_time, holder)
        nearby = await self._trees.leaves(holder, Leaves(max(0, end - NEARBY), end))
        return any(_records(leaf, shard) for leaf in reversed(nearby))

    async def _open_at(self, moment: datetime, first: int) -> Shard | None:
        """Return the shard, from this number on, that took records at a moment."""
        found = None
        while page := await self._shards.shards(first, _SHARDS_AT_ONCE):
            found = next((shard for shard in reversed(page) if shard.open_time <= moment), found)
            first = page[-1].number + 1
        return found

    async def _taken_by(self, moment: datetime, shard: Shard) -> int:
        """Return how many records a shard had taken at a moment."""
        low, high = 0, shard.size
        while low < high:
            middle = (low + high) // 2
            found = await self._trees.leaves(shard, Leaves(middle, middle + 1))
            if found and found[0].log_time is not None and found[0].log_time <= moment:
                low = middle + 1
            else:
                high = middle
        return low


def _records(leaf: Leaf, shard: Shard) -> bool:
    if _SAYS_SO not in leaf.canonical or leaf_hash(leaf.canonical) != leaf.leaf_hash:
        return False
    try:
        form = parse_object(leaf.canonical)
    except MeshError:
        return False
    said = {"shard": shard.number, "manifest_digest": shard.manifest_digest, "records_dropped": True}
    written = (form.get("event_class"), form.get("writer"))
    return written == ("shard_archived", "audit") and form.get("archival") == said
