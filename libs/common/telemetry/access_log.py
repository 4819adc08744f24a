"""The line that a log has for every call.

Written out by hand, because there is one for each call of every process: what the lines of many calls have in common is put into JSON once and
remembered, and what differs is figures and identifiers that need no quoting.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from json import dumps as quoted
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libs.common.call_context import Call


def call_line(service: str, call: Call, code: str, elapsed: float, moment: float) -> bytes:
    """Return the line of a call that ended at a moment and took so many seconds. The token is never in it."""
    trace, identity, offered = call.trace, call.identity, call.offered
    whole, micros = divmod(int(moment * 1_000_000), 1_000_000)
    deadline = "null" if offered is None else f"{offered * 1000:.3f}"
    request = quoted(call.request_id) if call.request_id else '""'
    return (
        f'{{"ts":"{_second(whole)}.{micros:06d}+00:00",{_began(service)}"trace_id":"{trace.trace_id}",'
        f'{_what(call.method, code)}"ms":{elapsed * 1000:.3f},"deadline_ms":{deadline},'
        f"{_who(call.peer, identity.subject if identity else '')}"
        f'"span_id":"{trace.span_id}","parent_id":"{trace.parent_id}","request_id":{request}}}\n'
    ).encode()


@lru_cache(maxsize=4)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=4)
def _began(service: str) -> str:
    return f'"level":"info","service":{quoted(service)},"event":"call",'


@lru_cache(maxsize=1024)
def _what(method: str, code: str) -> str:
    return f'"method":{quoted(method)},"code":{quoted(code)},'


@lru_cache(maxsize=4096)
def _who(peer: str, subject: str) -> str:
    return f'"peer":{quoted(peer)},"subject":{quoted(subject)},'
