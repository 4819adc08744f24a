"""A batch with refused records: all or none of it, or all but those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.audit.domain.errors import TakenIdsError, record_invalid
from services.audit.domain.log.append_batch import NOTHING_STORED, Candidate, append_accepted, append_all
from services.audit.domain.model import Entry
from services.audit.tests.sample import an_entry

INVALID = record_invalid("r", "canonical_records[7].result_summary", "record.json")


class ListAppender:
    """Stores batches in a list, and refuses ids that are taken."""

    def __init__(self, *taken: str) -> None:
        self.taken, self.stored = taken, list[Entry]()

    async def append(self, batch: Sequence[Entry]) -> int:
        positions = [position for position, entry in enumerate(batch) if entry.record_id in self.taken]
        if positions:
            raise TakenIdsError(batch[positions[0]].record_id, positions)
        self.stored += batch
        return len(self.stored) - 1


async def test_all_or_none_of_a_batch_is_stored() -> None:
    appender: Any = ListAppender()
    with pytest.raises(MeshError) as caught:
        await append_all(appender, [an_entry(), INVALID])
    assert (caught.value.reason, appender.stored) == (Reason.AUDIT_RECORD_INVALID, [])
    assert (await append_all(appender, [an_entry(), an_entry()])).last_sequence == 1


async def test_accepted_records_are_stored_and_the_others_named() -> None:
    first, taken, last = an_entry(), an_entry(), an_entry()
    appender: Any = ListAppender(taken.record_id)
    batch: list[Candidate] = [INVALID, first, taken, last]
    appended = await append_accepted(appender, batch)
    assert appender.stored == [first, last]
    assert [(each.index, each.record_id, each.path, each.rule) for each in appended.refused] == [
        (0, "r", "result_summary", "record.json"),
        (2, taken.record_id, "record_id", "record_id.taken"),
    ]


async def test_a_batch_of_refused_records_stores_nothing() -> None:
    taken = an_entry()
    appender: Any = ListAppender(taken.record_id)
    appended = await append_accepted(appender, [INVALID, taken])
    assert (appended.last_sequence, len(appended.refused), appender.stored) == (NOTHING_STORED, 2, [])
