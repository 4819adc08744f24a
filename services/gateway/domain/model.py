"""The nouns of JSON-RPC 2.0: a message holds entries, an entry is a request or unusable, an answer belongs to one entry."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from libs.common.errors import MeshError

Id: TypeAlias = str | int | float | None


class Request(NamedTuple):
    """One call that was asked for. A notification is a request whose caller wants no answer."""

    id: Id
    method: str
    params: dict[str, Any] | list[Any]
    notification: bool


class Unusable(NamedTuple):
    """An entry that is no request. It is answered with its error and never run."""

    id: Id
    error: MeshError


Entry: TypeAlias = Request | Unusable


class Message(NamedTuple):
    """What one body holds."""

    entries: tuple[Entry, ...]
    batch: bool


class Answer(NamedTuple):
    """What becomes of one entry: a result, or an error in its place."""

    id: Id
    result: Any = None
    error: MeshError | None = None
