"""JSON-RPC 2.0: a message holds entries, an entry is a request or invalid, a response belongs to one entry."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from libs.common.errors import MeshError

Id: TypeAlias = str | int | float | None


class Request(NamedTuple):
    """One call. A notification is a request whose caller wants no response."""

    id: Id
    method: str
    params: dict[str, Any] | list[Any]
    notification: bool


class InvalidEntry(NamedTuple):
    """An entry that is not a valid request. Its response is the error; it is never run."""

    id: Id
    error: MeshError


Entry: TypeAlias = Request | InvalidEntry


class Message(NamedTuple):
    """The content of one body."""

    entries: tuple[Entry, ...]
    batch: bool


class Response(NamedTuple):
    """The outcome of one entry: a result or an error."""

    id: Id
    result: Any = None
    error: MeshError | None = None
