"""The call object that a tool function gets beside its arguments."""

from __future__ import annotations

import time

from .frames import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

# Limits of what a call reports beside its result; the executor reads no more than this.
MAX_NOTES = 1000
UNDO_BYTES = 64 * 1024
MAX_MICROS = 2**53
_MAX_TEXT = 512
_OPERATIONS = ("create", "update", "delete")


class ToolFailure(Exception):  # noqa: N818  (public name that tool authors raise)
    """The tool could not do what it was asked to. The message is shown to the caller.

    `partial` means that a part of the work was done.
    """

    def __init__(self, message: str, *, partial: bool = False) -> None:
        super().__init__(message)
        self.message = to_unicode(message)
        self.partial = bool(partial)


class Call:
    """Properties of the call beside its arguments, and methods to report beside the result."""

    def __init__(self, request: dict[str, Any], log: Callable[[str], None] = lambda text: None) -> None:
        self.invocation_id: str = request["id"]
        self.idempotency_key: str = request["key"]
        """The caller's key. Pass it on to other services, so that a retry has no second effect there."""
        self.preview: bool = request["preview"]
        """True if the call must only determine what it would do. Its changes are discarded."""
        self._ends: float = time.monotonic() + request["seconds"]
        self._log = log
        self.notes: dict[str, Any] = {"effects": [], "costs": [], "expects": []}

    def remaining(self) -> float:
        """Return the seconds until the call is stopped."""
        return max(0.0, self._ends - time.monotonic())

    def report_effect(self, resource: str, operation: str) -> None:
        """Report a change, or in a preview an expected change. The operation is create, update or delete."""
        if operation not in _OPERATIONS:
            raise ValueError("the operation of an effect must be create, update or delete")
        if not str(resource):
            raise ValueError("an effect needs a resource")
        self._note("effects", [to_unicode(resource, _MAX_TEXT), operation])

    def cost(self, category: str, micros: int) -> None:
        """Report the cost of a part of the call, in millionths of the currency."""
        if not 0 <= micros <= MAX_MICROS:
            raise ValueError(f"a cost must be between 0 and {MAX_MICROS}")
        self._note("costs", [to_unicode(category, 64), int(micros)])

    def undo(self, arguments: dict[str, Any]) -> None:
        """Report the arguments with which the compensating tool undoes this call. Raises if they have no JSON form or
        are too large."""
        if len(encode(arguments)) > UNDO_BYTES:
            raise ValueError(f"undo arguments are limited to {UNDO_BYTES} bytes")
        self.notes["undo"] = dict(arguments)

    def expect(self, condition: str, holds: bool) -> None:
        """Report in a preview a condition of success and whether it holds now."""
        self._note("expects", [to_unicode(condition, _MAX_TEXT), bool(holds)])

    def impact(self, text: str) -> None:
        """Report in a preview the impact of the call in one sentence."""
        self.notes["impact"] = to_unicode(text, _MAX_TEXT)

    def log(self, text: str) -> None:
        """Write a line to the log of the tool, as `print` does. Callers do not see it; see `toolmesh logs --tool`."""
        self._log(to_unicode(text) + "\n")

    def _note(self, kind: str, note: Any) -> None:
        notes = self.notes[kind]
        if len(notes) >= MAX_NOTES:
            raise ValueError(f"a call has at most {MAX_NOTES} {kind}")
        notes.append(note)


def to_unicode(text: object, limit: int | None = None) -> str:
    """Return text as valid Unicode, optionally truncated: file names that are not UTF-8 contain lone surrogates."""
    return str(text)[:limit].encode("utf-8", "replace").decode()


def previewed_by(forecast: Callable[[dict[str, Any], Call], Any]) -> Callable[[F], F]:
    """Set the function that a preview calls instead of the tool. It gets the same arguments, returns the expected
    result, and reports effects, expectations and impact to the call."""

    def decorate(function: F) -> F:
        function.preview = forecast  # type: ignore[attr-defined]
        return function

    return decorate
