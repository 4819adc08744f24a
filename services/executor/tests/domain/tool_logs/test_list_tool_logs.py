"""Listing logs: who sees which, page by page, within the size of a message."""

from __future__ import annotations

import pytest

from libs.common.auth.identity import Grant
from libs.common.errors import MeshError, Reason
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.tool_logs.list_tool_logs import ListToolLogs, LogQuery
from services.executor.domain.tool_logs.tool_log import ToolLog

EVERYTHING = (Grant("*"),)


class Kept:
    """Logs in memory, by position."""

    def __init__(self, *logs: ToolLog) -> None:
        self._logs = list(enumerate(logs))

    async def find(self, query: LogQuery, *, before: int | None, limit: int) -> list[tuple[int, ToolLog]]:
        older = [(nth, log) for nth, log in self._logs if before is None or nth < before]
        return older[::-1][:limit]


def a_log(name: str, tool: str = "core.say", text: str = "x") -> ToolLog:
    return ToolLog(name, tool, "1.0.0", "acme", "alice", (LogLine(LogSource.STDOUT, text),))


async def names(listing: ListToolLogs, grants: tuple[Grant, ...] | None = EVERYTHING, size: int = 0) -> list[list[str]]:
    pages: list[list[str]] = []
    token = ""
    while not pages or token:
        page = await listing.execute(LogQuery("core.say"), grants, page_size=size, page_token=token)
        pages.append([log.invocation_id for log in page.logs])
        token = page.next_page_token
    return pages


async def test_pages_hold_the_newest_first_and_fit_into_a_message() -> None:
    listing = ListToolLogs(Kept(*(a_log(f"i{number}") for number in range(5))))
    assert await names(listing, size=2) == [["i4", "i3"], ["i2", "i1"], ["i0"]]
    large = ListToolLogs(Kept(*(a_log(f"i{number}", text="x" * 400_000) for number in range(3))))
    assert await names(large) == [["i2"], ["i1"], ["i0"]]


async def test_a_token_sees_the_logs_of_the_tools_that_it_names() -> None:
    listing = ListToolLogs(Kept(a_log("own"), a_log("other", "acme.pay")))
    for grants, seen in ((EVERYTHING, ["other", "own"]), ((Grant("core.say"),), ["own"]), (None, ["other", "own"])):
        page = await listing.execute(LogQuery(invocation_id="any"), grants)
        assert [log.invocation_id for log in page.logs] == seen
    with pytest.raises(MeshError) as refused:
        await listing.execute(LogQuery("acme.pay"), (Grant("core.say"),))
    assert refused.value.reason is Reason.TOOL_NOT_IN_TOKEN


async def test_a_query_without_a_filter_or_with_another_page_token_is_refused() -> None:
    listing = ListToolLogs(Kept(*(a_log(f"i{number}") for number in range(3))))
    token = (await listing.execute(LogQuery("core.say", tenant="acme"), EVERYTHING, page_size=1)).next_page_token
    for query, reason in (
        (LogQuery(), Reason.INVALID_REQUEST),
        (LogQuery("core.say", tenant="other"), Reason.PAGE_TOKEN_INVALID),
    ):
        with pytest.raises(MeshError) as refused:
            await listing.execute(query, EVERYTHING, page_token=token)
        assert refused.value.reason is reason
