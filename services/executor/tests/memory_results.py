"""A store of large results in memory, with the promises of its port and an end of its own choosing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from services.executor.domain.results.store import PIECE_BYTES, StoredHead


class MemoryResults:
    """Keeps what it is given until a test lets it expire."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[StoredHead, bytes, float]] = {}
        self.lost: set[int] = set()
        self.failure: Exception | None = None

    async def put(self, head: StoredHead, content: bytes, *, seconds: float) -> datetime:
        if self.failure is not None:
            raise self.failure
        self.kept[head.result_id] = (head, content, seconds)
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    async def find(self, result_id: str) -> StoredHead | None:
        return self.kept[result_id][0] if result_id in self.kept else None

    async def piece(self, head: StoredHead, number: int) -> bytes | None:
        if head.result_id not in self.kept or number in self.lost:
            return None
        return self.kept[head.result_id][1][number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
