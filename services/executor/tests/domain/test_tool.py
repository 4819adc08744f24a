"""What the mesh itself requires of a tool, whatever policy says."""

from __future__ import annotations

import pytest

from services.executor.domain.tool import Mutation
from services.executor.tests.samples import a_tool

READS, REVERSIBLE, IRREVERSIBLE = Mutation.READ_ONLY, Mutation.WRITE_REVERSIBLE, Mutation.WRITE_IRREVERSIBLE


@pytest.mark.parametrize(
    ("mutation", "always", "dry_run", "approval", "preview"),
    [
        (READS, False, True, False, False),
        (READS, True, False, True, False),
        (REVERSIBLE, False, True, False, False),
        (REVERSIBLE, True, True, True, False),
        (IRREVERSIBLE, False, True, True, True),
        (IRREVERSIBLE, True, True, True, True),
        (IRREVERSIBLE, True, False, True, False),
        # The registry does not admit it. Then no call can meet the requirement.
        (IRREVERSIBLE, False, False, True, True),
    ],
)
def test_writes_without_a_way_back_need_a_person_and_a_preview_where_there_is_one(
    mutation: Mutation, always: bool, dry_run: bool, approval: bool, preview: bool
) -> None:
    tool = a_tool(mutation=mutation, approval_always=always, dry_run=dry_run)
    assert (tool.requires_approval, tool.requires_preview) == (approval, preview)
