"""Formats the log line of a call.

Formatted by hand, because every call writes one: the parts that many lines share are encoded once and cached, and the
rest needs no quoting.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from json import dumps as quoted
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libs.common.call_context import Call


def call_line(service: str, call: Call, code: str, elapsed: float, moment: float) -> bytes:
    """Return the line of a call that ended at `moment` after `elapsed` seconds. It never contains the token."""
    trace, identity, offered = call.trace, call.identity, call.offered
    whole, micros = divmod(int(moment * 1_000_000), 1_000_000)
    deadline = "null" if offered is None else f"{offered * 1000:.3f}"
    request = quoted(call.request_id) if call.request_id else '""'
    return (
        f'{{"ts":"{_second(whole)}.{micros:06d}+00:00",{_prefix(service)}"trace_id":"{trace.trace_id}",'
        f'{_method_and_code(call.method, code)}"ms":{elapsed * 1000:.3f},"deadline_ms":{deadline},'
        f"{_peer_and_subject(call.peer, identity.subject if identity else '')}"
        f'"span_id":"{trace.span_id}","parent_id":"{trace.parent_id}","request_id":{request}}}\n'
    ).encode()


@lru_cache(maxsize=4)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=4)
def _prefix(service: str) -> str:
    return f'"level":"info","service":{quoted(service)},"event":"call",'


@lru_cache(maxsize=1024)
def _method_and_code(method: str, code: str) -> str:
    return f'"method":{quoted(method)},"code":{quoted(code)},'


@lru_cache(maxsize=4096)
def _peer_and_subject(peer: str, subject: str) -> str:
    return f'"peer":{quoted(peer)},"subject":{quoted(subject)},'
