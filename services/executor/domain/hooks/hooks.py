"""Runs the hooks of a deployment: before a call, when it needs approval, after its run, and after a failure.

A hook may add context for the model, report risks to policy, change the arguments where its declaration and the tool's
manifest allow it, require approval, and stop the call. It can never allow what policy denies, nor change a result. Its
answer or failure is recorded; after a failure the call continues or ends as the hook declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from libs.common.errors import MeshError
from libs.common.json.globs import matches
from libs.common.redaction.declared import Declared
from libs.common.redaction.scanner import Scanner
from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.argument_spec import Change
from services.executor.domain.hooks.answers import MAX_RISKS, Answer, HookFailedError, parse_answer
from services.executor.domain.hooks.redacted_input import RedactedView, changes_between, restore_hidden
from services.executor.domain.model import Caller
from services.executor.domain.scheduling.heavy_work import HeavyWork, WorkShare
from services.executor.domain.tool import Tool
from services.executor.domain.validation_cost import is_light

MAX_HOOKS = 64
# Tools come and go; a process that lives long must not remember all of them.
_MAX_REMEMBERED = 10_000
_NEVER = float("inf")


class Phase(StrEnum):
    """The point at which a hook runs."""

    PRE = "pre"
    APPROVAL = "approval"
    POST = "post"
    FAILURE = "failure"


class Respondent(Protocol):
    """The implementation of a hook."""

    async def ask(self, event: dict[str, Any], share: WorkShare) -> Any:
        """Return the answer as a JSON value, or None for none. Raises HookFailedError; canceled on timeout.

        Large events are copied and encoded in the share of the caller.
        """
        ...


@dataclass(frozen=True, slots=True)
class Hook:
    """The declaration of one hook."""

    name: str
    phase: Phase
    tools: tuple[str, ...]
    """Patterns of qualified tool names."""
    timeout: float
    respondent: Respondent
    fails_open: bool = False
    """True if calls continue when the hook fails."""
    may_change_input: bool = False
    sees_sensitive: bool = False
    """True if it sees sensitive values; other hooks see redaction marks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a call that hooks receive beside its input. Never a token."""

    invocation_id: str
    tool: Tool
    caller: Caller
    scanner: Scanner
    trace_id: str = ""
    preview: bool = False
    """True for a preview."""
    notes: list[str] = field(default_factory=list)
    """The answer of each hook for the audit record, as `pre NAME ANSWER 12ms`. Kept if a hook is interrupted."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The combined answers of the hooks of one phase."""

    context: tuple[str, ...] = ()
    arguments: dict[str, Any] | None = None
    """The changed arguments; None if unchanged. They must be validated again."""
    changes: tuple[Change, ...] = ()
    stop: MeshError | None = None
    """HOOK_BLOCKED if a hook stopped the call; APPROVAL_REJECTED if it rejected it."""
    asks_approval: str = ""
    """The hook that requires approval; empty for none."""
    risk: tuple[tuple[str, int], ...] = ()
    """Risk facts for policy, by name."""


NOTHING = Verdicts()


class Hooks:
    """The hooks of a deployment."""

    def __init__(self, hooks: Sequence[Hook], clock: Clock, heavy_work: HeavyWork | None = None) -> None:
        """`heavy_work` redacts, copies and encodes large values."""
        self._hooks, self._clock, self._heavy_work = tuple(hooks), clock, heavy_work or HeavyWork()
        self._matching: BoundedCache[str, dict[Phase, tuple[Hook, ...]]] = BoundedCache(_MAX_REMEMBERED)
        self.active = bool(hooks)
        """False if no hook is declared; then no method has to be called."""

    def matching(self, tool: Tool, phase: Phase) -> tuple[Hook, ...]:
        """Return the hooks of a tool and phase, in the order of their declaration."""
        by_phase = self._matching.get(tool.qualified)
        if by_phase is None:
            by_phase = {each: self._find(tool.qualified, each) for each in Phase}
            self._matching.put(tool.qualified, by_phase)
        return by_phase[phase]

    async def before(self, facts: Facts, arguments: dict[str, Any], *, until: float = _NEVER) -> Verdicts:
        """Run the pre hooks. Each one sees the input as the previous one left it; one that stops the call is the last.

        Raises DEADLINE_EXCEEDED when the deadline of the call ends before the timeout of a hook.
        """
        hooks = self.matching(facts.tool, Phase.PRE)
        if not hooks:
            return NOTHING
        context: list[str] = []
        changes: list[Change] = []
        risk: dict[str, int] = {}
        changed, asks_approval = arguments, ""
        for hook in hooks:
            view = await self._view(hook, facts, changed, facts.tool.input.declared)
            answer = await self._ask(hook, facts, {"input": view.shown}, until, view)
            if isinstance(answer, MeshError):
                return Verdicts(tuple(context), stop=answer)
            context.extend(answer.context)
            asks_approval = asks_approval or (hook.name if answer.asks_approval else "")
            for name, number in answer.risk:
                # The higher number wins: no hook can lower the risk that another one reports.
                risk[name] = max(number, risk.get(name, number))
            if answer.input is not None:
                changes.extend(Change(path, "hook", hook.name) for path in changes_between(changed, answer.input))
                changed = answer.input
        if len(risk) > MAX_RISKS:
            return Verdicts(tuple(context), stop=errors.hook_blocked(hooks[-1].name, "too_many_risks"))
        return Verdicts(
            context=tuple(context),
            arguments=changed if changes else None,
            changes=tuple(changes),
            asks_approval=asks_approval,
            risk=tuple(risk.items()),
        )

    async def at_approval(
        self, facts: Facts, arguments: dict[str, Any], wanted: dict[str, Any], *, until: float = _NEVER
    ) -> Verdicts:
        """Run the approval hooks of a call that needs approval. A denial rejects the call; no hook can approve it."""
        context: list[str] = []
        declared = facts.tool.input.declared
        for hook in self.matching(facts.tool, Phase.APPROVAL):
            seen = {"input": (await self._view(hook, facts, arguments, declared)).shown, "approval": wanted}
            answer = await self._ask(hook, facts, seen, until)
            if isinstance(answer, MeshError):
                return Verdicts(tuple(context), stop=answer)
            context.extend(answer.context)
        return Verdicts(tuple(context))

    async def after(self, facts: Facts, arguments: dict[str, Any], value: Any, *, until: float = _NEVER) -> Verdicts:
        """Run the post hooks on a result before its caller gets it. A stop withholds the result."""
        context: list[str] = []
        for hook in self.matching(facts.tool, Phase.POST):
            seen = {
                "input": (await self._view(hook, facts, arguments, facts.tool.input.declared)).shown,
                "result": (await self._view(hook, facts, value, facts.tool.output.declared)).shown,
            }
            answer = await self._ask(hook, facts, seen, until)
            if isinstance(answer, MeshError):
                return Verdicts(tuple(context), stop=answer)
            context.extend(answer.context)
        return Verdicts(tuple(context))

    async def after_failure(
        self, facts: Facts, arguments: dict[str, Any], error: MeshError, *, until: float = _NEVER
    ) -> Verdicts:
        """Run the failure hooks and collect their context. The failure stays, whatever the hooks answer.

        At the deadline of the call the remaining hooks are skipped.
        """
        context: list[str] = []
        for hook in self.matching(facts.tool, Phase.FAILURE):
            scanner = None if hook.sees_sensitive else facts.scanner
            view = await self._view(hook, facts, arguments, facts.tool.input.declared)
            # The message may be the tool's own, and repeat its arguments.
            redact = partial(view.redact_text, error.message, scanner)
            light = scanner is None or is_light(arguments)
            message = redact() if light else await self._heavy_work.run(facts.caller, redact)
            described = {"code": error.row.code, "reason": error.reason.name, "message": message}
            seen = {"input": view.shown, "error": described}
            try:
                answer = await self._ask(hook, facts, seen, until)
            except MeshError:
                break
            if not isinstance(answer, MeshError):
                context.extend(answer.context)
        return Verdicts(tuple(context))

    def _find(self, tool: str, phase: Phase) -> tuple[Hook, ...]:
        return tuple(
            hook for hook in self._hooks if hook.phase is phase and any(matches(each, tool) for each in hook.tools)
        )

    async def _view(self, hook: Hook, facts: Facts, value: Any, declared: Declared | None) -> RedactedView:
        """Return a value as a hook sees it. Large values are redacted beside the event loop."""
        redact = partial(RedactedView.of, value, declared, None if hook.sees_sensitive else facts.scanner)
        return redact() if hook.sees_sensitive or is_light(value) else await self._heavy_work.run(facts.caller, redact)

    async def _ask(
        self, hook: Hook, facts: Facts, seen: dict[str, Any], until: float, view: RedactedView | None = None
    ) -> Answer | MeshError:
        """Return the answer of a hook, or the error that ends the call."""
        began = self._clock.monotonic()
        left = until - began
        if left <= 0:
            raise errors.deadline_exceeded()
        event = {**_describe_call(facts), "phase": str(hook.phase), "hook": hook.name, **seen}
        try:
            async with asyncio.timeout(min(hook.timeout, left)):
                answered = await hook.respondent.ask(event, self._heavy_work.share_of(facts.caller))
            answer = _allowed(parse_answer(answered, hook.phase), hook, facts.tool, view)
        except TimeoutError:
            if left <= hook.timeout:
                self._note(hook, facts, "interrupted", began)
                raise errors.deadline_exceeded() from None
            return self._failed(hook, facts, "timeout", began)
        except HookFailedError as failure:
            return self._failed(hook, facts, failure.kind, began)
        except asyncio.CancelledError:
            self._note(hook, facts, "interrupted", began)
            raise
        self._note(hook, facts, answer.said, began)
        if answer.stops and hook.phase is Phase.APPROVAL:
            return errors.approval_rejected(hook.name, answer.reason)
        if answer.stops:
            return errors.hook_blocked(hook.name, answer.said, answer.reason)
        return answer

    def _failed(self, hook: Hook, facts: Facts, kind: str, began: float) -> Answer | MeshError:
        self._note(hook, facts, f"failed:{kind}:{'open' if hook.fails_open else 'closed'}", began)
        return Answer() if hook.fails_open else errors.hook_blocked(hook.name, kind)

    def _note(self, hook: Hook, facts: Facts, said: str, began: float) -> None:
        taken = round((self._clock.monotonic() - began) * 1000)
        facts.notes.append(f"{hook.phase} {hook.name} {said} {taken}ms")


def _allowed(answer: Answer, hook: Hook, tool: Tool, view: RedactedView | None) -> Answer:
    """Return the answer with hidden values restored. Raises HookFailedError if the hook may not change the input."""
    if answer.input is None or view is None:
        return answer
    if not (hook.may_change_input and tool.hooks_may_change):
        raise HookFailedError("input_not_allowed")
    return answer.with_input(restore_hidden(answer.input, view))


def _describe_call(facts: Facts) -> dict[str, Any]:
    tool, caller = facts.tool, facts.caller
    return {
        "invocation_id": facts.invocation_id,
        "trace_id": facts.trace_id,
        "preview": facts.preview,
        "tool": {"name": tool.qualified, "version": tool.name, "digest": tool.digest, "mutation": str(tool.mutation)},
        "caller": {
            "subject": caller.subject,
            "agent": caller.agent,
            "tenant": caller.tenant,
            "session_id": caller.session_id,
        },
    }
