"""Parses the answer of a tool process, which is untrusted input, and maps its failures to mesh errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from libs.common.errors import MeshError, Violation
from libs.common.json.jsonio import dump
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.worker.frames import FrameError
from services.executor.adapters.sandbox.exit_report import error_for_exit
from services.executor.adapters.sandbox.port import ExitKind, ExitReport
from services.executor.domain import errors, run_errors
from services.executor.domain.run import LogLine, LogSource, RunRequest
from services.executor.domain.tool import Effect, Tool

_OPERATIONS = ("create", "update", "delete")
_LIMITS = ("processes", "file_size")
_MAX_MESSAGE = 500
_MAX_RESOURCE = 512
_MAX_NOTES = 1000
_MAX_UNDO = 64 * 1024
_MAX_COST = 2**53
_MAX_LOGGED_DETAIL = 2000


class MalformedAnswerError(Exception):
    """The frame does not have the form of an answer, so the worker's own code did not write it."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """One answer of a tool: a value or a failure, with effects and costs."""

    value: Any = None
    failure: MeshError | None = None
    ends_worker: bool = False
    """True if the process must not get another call."""
    canceled: bool = False
    """True if the tool says that it stopped because it was asked to."""
    detail: str = ""
    """The cause of the failure, for the mesh's log only."""
    effects: tuple[Effect, ...] = ()
    costs: tuple[tuple[str, int], ...] = ()
    undo: dict[str, Any] | None = None
    expects: tuple[tuple[str, bool], ...] = ()
    impact: str = ""


def parse_answer(frame: dict[str, Any], invocation_id: str, limit: int) -> ToolAnswer:
    """Parse the answer to a call. Raises MalformedAnswerError."""
    if frame.get("id") != invocation_id:
        raise MalformedAnswerError
    notes = frame.get("notes", {})
    if not isinstance(notes, dict):
        raise MalformedAnswerError
    effects = tuple(_effect(note) for note in _pairs(notes, "effects"))
    costs = tuple(_cost(note) for note in _pairs(notes, "costs"))
    failed = frame.get("failed")
    if failed is not None:
        return replace(_failure(failed, limit), effects=effects, costs=costs)
    if "value" not in frame:
        raise MalformedAnswerError
    return ToolAnswer(
        frame["value"],
        effects=effects,
        costs=costs,
        undo=_undo(notes),
        expects=tuple(_expectation(note) for note in _pairs(notes, "expects")),
        impact=printable(notes.get("impact", "")),
    )


def process_lost_error(ending: ExitReport, work: RunRequest) -> MeshError:
    """Return the error of a process that ended without an answer. A plain exit or our own kill counts as a crash."""
    if ending.kind in (ExitKind.EXITED, ExitKind.KILLED):
        return run_errors.worker_lost()
    return error_for_exit(ending, work.seconds)


def unreadable_result_error(error: FrameError, limit: int) -> MeshError:
    """Return the error of an output that is no result: too large, or not strict JSON."""
    if error.size:
        return errors.result_too_large(error.size, limit)
    return errors.result_invalid([Violation("", "json", "the result has no JSON form")])


def log_failure(log: Log, tool: Tool, work: RunRequest, error: MeshError, detail: str = "") -> None:
    """Log a tool's failure as a warning, because warnings are redacted, and add its cause to the log of the tool."""
    work.notes.lines += split_lines(LogSource.FAILURE, detail[-_MAX_LOGGED_DETAIL:] or error.message)
    log.warning(
        "tool failed",
        scanner=work.scanner,
        tool=tool.name,
        invocation=work.invocation_id,
        reason=error.reason.name,
        detail=detail[-_MAX_LOGGED_DETAIL:],
    )


def split_lines(source: LogSource, text: str) -> list[LogLine]:
    """Return text as lines without control characters, which a terminal might obey."""
    return [LogLine(source, printable_line(line)) for line in text.splitlines()]


def printable_line(line: str) -> str:
    """Return a line with a mark in place of each control character."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() or letter == "\t" else "\N{REPLACEMENT CHARACTER}" for letter in line)


def printable(text: Any) -> str:
    """Return a tool's text bounded and without control characters, which a terminal or a model might obey."""
    bounded = str(text)[:_MAX_MESSAGE]
    return bounded if bounded.isprintable() else "".join(letter for letter in bounded if letter.isprintable())


def _failure(failed: Any, limit: int) -> ToolAnswer:
    if not isinstance(failed, dict):
        raise MalformedAnswerError
    kind, message = failed.get("kind"), printable(failed.get("message", ""))
    detail = str(failed.get("detail", ""))
    if kind == "failure":
        return ToolAnswer(failure=errors.execution_failed(message or "the tool failed"), detail=detail)
    if kind == "partial":
        return ToolAnswer(failure=run_errors.partly_done(message), detail=detail)
    if kind == "error":
        return ToolAnswer(failure=run_errors.tool_raised(message), detail=detail)
    if kind == "canceled":
        return ToolAnswer(failure=run_errors.tool_raised("Canceled"), ends_worker=True, canceled=True)
    if kind == "input":
        return ToolAnswer(failure=errors.input_unavailable(), detail=detail)
    if kind == "stream":
        return ToolAnswer(failure=run_errors.stream_discarded(_count(failed.get("parts"))), detail=detail)
    if kind == "result":
        violation = Violation("", "json", "the result has no JSON form")
        return ToolAnswer(failure=errors.result_invalid([violation]), detail=detail)
    if kind == "size":
        return ToolAnswer(failure=errors.result_too_large(_count(message), limit))
    if kind == "limit" and message in _LIMITS:
        return ToolAnswer(failure=run_errors.limit_reached(message), ends_worker=True, detail=detail)
    if kind == "memory":
        return ToolAnswer(failure=run_errors.out_of_memory(), ends_worker=True)
    raise MalformedAnswerError


def _pairs(notes: dict[str, Any], kind: str) -> list[Any]:
    pairs = notes.get(kind, [])
    if not isinstance(pairs, list) or len(pairs) > _MAX_NOTES:
        raise MalformedAnswerError
    if any(not isinstance(note, list) or len(note) != 2 for note in pairs):
        raise MalformedAnswerError
    return pairs


def _effect(note: list[Any]) -> Effect:
    resource, operation = note
    if not isinstance(resource, str) or not resource or operation not in _OPERATIONS:
        raise MalformedAnswerError
    return Effect(resource[:_MAX_RESOURCE], operation)


def _cost(note: list[Any]) -> tuple[str, int]:
    category, micros = note
    if not isinstance(category, str) or type(micros) is not int or not 0 <= micros <= _MAX_COST:
        raise MalformedAnswerError
    return category[:64], micros


def _undo(notes: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of the call that undoes this one.

    Bounded, because the response must fit into one message.
    """
    undo = notes.get("undo")
    if not isinstance(undo, dict):
        return None
    if len(dump(undo)) > _MAX_UNDO:
        raise MalformedAnswerError
    return undo


def _expectation(note: list[Any]) -> tuple[str, bool]:
    condition, holds = note
    if not isinstance(condition, str) or not isinstance(holds, bool):
        raise MalformedAnswerError
    return printable(condition), holds


def _count(value: Any) -> int:
    return int(value) if str(value).isascii() and str(value).isdigit() and len(str(value)) < 12 else 0
