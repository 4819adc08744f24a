"""GetUpstream, ListUpstreams and WatchUpstreams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from libs.common import page_tokens
from services.registry.domain.errors import page_token_invalid, upstream_not_found
from services.registry.domain.upstreams.ports import Upstreams
from services.registry.domain.upstreams.upstream import Upstream

DEFAULT_PAGE = 20
# More tools do not fit into one message.
_TOOLS_OF_A_PAGE = 4096
POLL_SECONDS = 0.5
_HEARTBEAT_POLLS = 2


@dataclass(frozen=True, slots=True)
class UpstreamPage:
    """One page of upstreams. An empty token marks the last page."""

    upstreams: tuple[Upstream, ...]
    next_token: str


@dataclass(frozen=True, slots=True)
class UpstreamRemoved:
    """An upstream is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class SnapshotComplete:
    """All upstreams have been sent."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing changed."""


Event = Upstream | UpstreamRemoved | SnapshotComplete | Heartbeat


async def get_upstream(upstream_id: str, *, upstreams: Upstreams) -> Upstream:
    """Return one upstream, or raise NOT_FOUND."""
    upstream = await upstreams.get(upstream_id)
    if upstream is None:
        raise upstream_not_found(upstream_id)
    return upstream


async def list_upstreams(page_size: int, page_token: str, *, upstreams: Upstreams) -> UpstreamPage:
    """Return a page of upstreams, sorted by id."""
    query = ["ListUpstreams"]
    cursor = page_tokens.decode(query, page_token)
    if cursor is not None and (len(cursor) != 1 or not isinstance(cursor[0], str) or "\0" in cursor[0]):
        raise page_token_invalid()
    limit = page_size or DEFAULT_PAGE
    rows = await upstreams.list(str(cursor[0]) if cursor else "", limit + 1)
    shown = tuple(_fitting(rows[:limit]))
    more = len(rows) > len(shown)
    return UpstreamPage(shown, page_tokens.encode(query, [shown[-1].upstream_id]) if more else "")


def _fitting(upstreams: Sequence[Upstream]) -> Iterator[Upstream]:
    """Yield the first upstream, and those after it while their tools fit into the page."""
    tools = 0
    for upstream in upstreams:
        tools += len(upstream.tools)
        if tools > _TOOLS_OF_A_PAGE and tools > len(upstream.tools):
            return
        yield upstream


async def watch_upstreams(
    *, upstreams: Upstreams, ended: asyncio.Event, interval: float = POLL_SECONDS
) -> AsyncGenerator[Event, None]:
    """Yield every upstream, the end of the snapshot, then changes, until this process stops."""
    known: dict[str, int] = {}
    polls = 0
    while not ended.is_set():
        current = await upstreams.revisions()
        for upstream_id in known.keys() - current.keys():
            del known[upstream_id]
            yield UpstreamRemoved(f"upstreams/{upstream_id}")
        for upstream_id in [name for name, revision in current.items() if known.get(name) != revision]:
            upstream = await upstreams.get(upstream_id)
            if upstream is not None:
                known[upstream_id] = upstream.revision
                yield upstream
        if polls % _HEARTBEAT_POLLS == 0:
            yield SnapshotComplete() if polls == 0 else Heartbeat()
        polls += 1
        try:
            async with asyncio.timeout(interval):
                await ended.wait()
        except TimeoutError:
            continue
