"""What a worker answered, read as what it is: the word of code that nobody vouches for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from libs.common.errors import MeshError, Violation
from libs.common.json.jsonio import dump
from services.executor.domain import errors
from services.executor.domain.tool import Effect

_OPERATIONS = ("create", "update", "delete")
_LIMITS = ("processes", "file_size")
_MAX_MESSAGE = 500
_MAX_RESOURCE = 512
_MAX_NOTES = 1000
_MAX_UNDO = 64 * 1024
# A page, for all lines of a call together: the worker keeps to it, and whoever speaks in its place must.
_MAX_LOG = 4096
_MAX_COST = 2**53


class MalformedError(Exception):
    """The answer does not have the form of one: whoever wrote it is not the worker that was started."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: a value or a failure, and what was said beside it."""

    value: Any = None
    failure: MeshError | None = None
    ends_worker: bool = False
    """True if the process that answered must not get another call."""
    detail: str = ""
    """What went wrong, for the log of the mesh only."""
    effects: tuple[Effect, ...] = ()
    costs: tuple[tuple[str, int], ...] = ()
    undo: dict[str, Any] | None = None
    expects: tuple[tuple[str, bool], ...] = ()
    impact: str = ""
    lines: tuple[str, ...] = field(default=())


def answer_of(frame: dict[str, Any], invocation_id: str, limit: int) -> Answer:
    """Read an answer to a call. Raises MalformedError."""
    if frame.get("id") != invocation_id:
        raise MalformedError
    notes = frame.get("notes", {})
    if not isinstance(notes, dict):
        raise MalformedError
    failed = frame.get("failed")
    if failed is not None:
        return _failure(failed, notes, limit)
    if "value" not in frame:
        raise MalformedError
    return Answer(
        frame["value"],
        effects=tuple(_effect(note) for note in _pairs(notes, "effects")),
        costs=tuple(_cost(note) for note in _pairs(notes, "costs")),
        undo=_undo(notes),
        expects=tuple(_expectation(note) for note in _pairs(notes, "expects")),
        impact=printable(notes.get("impact", "")),
        lines=_lines(notes),
    )


def printable(text: Any) -> str:
    """Return a text of a tool as a caller may read it: bounded, and without what a terminal or a model would obey unseen."""
    return "".join(letter for letter in str(text)[:_MAX_MESSAGE] if letter.isprintable() or letter == " ")


def _failure(failed: Any, notes: dict[str, Any], limit: int) -> Answer:
    if not isinstance(failed, dict):
        raise MalformedError
    kind, said = failed.get("kind"), printable(failed.get("message", ""))
    detail, lines = str(failed.get("detail", "")), _lines(notes)
    if kind == "failure":
        return Answer(failure=errors.execution_failed(said or "the tool failed"), detail=detail, lines=lines)
    if kind == "partial":
        return Answer(failure=errors.partly_done(said), detail=detail, lines=lines)
    if kind == "error":
        return Answer(failure=errors.tool_raised(said), detail=detail, lines=lines)
    if kind == "stream":
        return Answer(failure=errors.stream_discarded(_count(failed.get("parts"))), detail=detail, lines=lines)
    if kind == "result":
        violation = Violation("", "json", "the result has no JSON form")
        return Answer(failure=errors.result_invalid([violation]), detail=detail, lines=lines)
    if kind == "size":
        return Answer(failure=errors.result_too_large(_count(said), limit), lines=lines)
    if kind == "limit" and said in _LIMITS:
        return Answer(failure=errors.limit_reached(said), ends_worker=True, detail=detail, lines=lines)
    if kind == "memory":
        return Answer(failure=errors.out_of_memory(), ends_worker=True, lines=lines)
    raise MalformedError


def _pairs(notes: dict[str, Any], kind: str) -> list[Any]:
    found = notes.get(kind, [])
    if not isinstance(found, list) or len(found) > _MAX_NOTES:
        raise MalformedError
    if any(not isinstance(note, list) or len(note) != 2 for note in found):
        raise MalformedError
    return found


def _effect(note: list[Any]) -> Effect:
    resource, operation = note
    if not isinstance(resource, str) or not resource or operation not in _OPERATIONS:
        raise MalformedError
    return Effect(resource[:_MAX_RESOURCE], operation)


def _cost(note: list[Any]) -> tuple[str, int]:
    category, micros = note
    if not isinstance(category, str) or type(micros) is not int or not 0 <= micros <= _MAX_COST:
        raise MalformedError
    return category[:64], micros


def _undo(notes: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments of the call that would undo this one. They are part of the answer, which must fit into one message."""
    undo = notes.get("undo")
    if not isinstance(undo, dict):
        return None
    if len(dump(undo)) > _MAX_UNDO:
        raise MalformedError
    return undo


def _expectation(note: list[Any]) -> tuple[str, bool]:
    condition, holds = note
    if not isinstance(condition, str) or not isinstance(holds, bool):
        raise MalformedError
    return printable(condition), holds


def _lines(notes: dict[str, Any]) -> tuple[str, ...]:
    found = notes.get("log", [])
    if not isinstance(found, list) or len(found) > _MAX_NOTES or any(not isinstance(line, str) for line in found):
        raise MalformedError
    kept, left = [], _MAX_LOG
    for line in found:
        if left <= 0:
            break
        kept.append(line[:left])
        left -= len(line)
    return tuple(kept)


def _count(said: Any) -> int:
    return int(said) if str(said).isascii() and str(said).isdigit() and len(str(said)) < 12 else 0
