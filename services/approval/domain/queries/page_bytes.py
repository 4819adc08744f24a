"""Bounds the tickets of one answer by their size: a message of the mesh has 4 MiB, and a ticket may have 128 KiB."""

from __future__ import annotations

from collections.abc import Sequence

from services.approval.domain.model import Ticket

MAX_PAGE_BYTES = 3 * 1024 * 1024
# The most tickets that are read from the store at once: about as many of the largest as fit into one answer.
READ_AT_ONCE = 25
# The rest of a ticket, beside the two documents: names, reasons, votes, history.
_REST_BYTES = 16 * 1024


def count_fitting(tickets: Sequence[Ticket]) -> int:
    """Return how many of the tickets, from the first on, fit into one answer: at least one."""
    left = MAX_PAGE_BYTES
    for index, ticket in enumerate(tickets):
        left -= len(ticket.draft.redacted_arguments) + len(ticket.draft.preview) + _REST_BYTES
        if left < 0 and index:
            return index
    return len(tickets)
