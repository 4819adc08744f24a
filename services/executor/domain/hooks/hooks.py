"""Hooks: what a deployment wants asked before a call runs, where policy demands a person, after it ran, and after it failed.

A hook may add context for the model, tell policy of risks, change the arguments where it and the tool's manifest say so, demand that a person decides, and
stop the call. It can never allow what policy denies, nor change a result. What it answers is on record, and so is that it failed; a
call then goes on or ends as the hook's declaration says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from libs.common.errors import MeshError
from libs.common.json.globs import matches
from libs.common.redaction.scanner import Scanner
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.argument_spec import Change
from services.executor.domain.hooks.answers import MAX_RISKS, Answer, HookFailedError, answer_of
from services.executor.domain.hooks.redacted_input import RedactedView, changes_between, restore_hidden
from services.executor.domain.model import Caller
from services.executor.domain.tool import Tool

MAX_HOOKS = 64
# Tools come and go; a process that lives long must not remember each it ever saw.
_MAX_REMEMBERED = 10_000
_NEVER = float("inf")


class Phase(StrEnum):
    """When a hook is asked."""

    PRE = "pre"
    APPROVAL = "approval"
    POST = "post"
    FAILURE = "failure"


class Respondent(Protocol):
    """Whoever answers for a hook."""

    async def ask(self, event: dict[str, Any]) -> Any:
        """Return the answer as a JSON value, or None for none. Raises HookFailedError; it is canceled when its time is over."""
        ...


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook, as the deployment declares it."""

    name: str
    phase: Phase
    tools: tuple[str, ...]
    """Patterns of qualified tool names."""
    timeout: float
    respondent: Respondent
    fails_open: bool = False
    """True if calls go on without its answer when it fails."""
    may_change_input: bool = False
    sees_sensitive: bool = False
    """True if it is shown what is sensitive; others see that something was removed."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What hooks are told about a call beside its input: never a token."""

    invocation_id: str
    tool: Tool
    caller: Caller
    scanner: Scanner
    trace_id: str = ""
    preview: bool = False
    """True if the call is only to say what it would do."""
    notes: list[str] = field(default_factory=list)
    """What each hook answered, for the record, as `pre NAME ANSWER 12ms`. Also holds what was noted when asking them was interrupted."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What hooks have to say about a call, taken together."""

    context: tuple[str, ...] = ()
    arguments: dict[str, Any] | None = None
    """The arguments as hooks want them; None where they stay as they are. They are to be held against the contract again."""
    changes: tuple[Change, ...] = ()
    stop: MeshError | None = None
    """HOOK_BLOCKED, where a hook stopped the call; APPROVAL_REJECTED, where it rejected it."""
    asks_approval: str = ""
    """The hook that wants a person to decide; empty for none."""
    risk: tuple[tuple[str, int], ...] = ()
    """What policy is told about the risk of the call, by name."""


NOTHING = Verdicts()


class Hooks:
    """The hooks of a deployment."""

    def __init__(self, hooks: Sequence[Hook], clock: Clock) -> None:
        self._hooks, self._clock = tuple(hooks), clock
        self._matching: dict[str, dict[Phase, tuple[Hook, ...]]] = {}
        self.active = bool(hooks)
        """False where no hook is declared; then nobody needs to ask further."""

    def matching(self, tool: Tool, phase: Phase) -> tuple[Hook, ...]:
        """Return the hooks to ask about calls of a tool, in the order of their declaration."""
        found = self._matching.get(tool.qualified)
        if found is None:
            if len(self._matching) >= _MAX_REMEMBERED:
                self._matching.clear()
            found = {each: self._find(tool.qualified, each) for each in Phase}
            self._matching[tool.qualified] = found
        return found[phase]

    async def before(self, facts: Facts, arguments: dict[str, Any], *, until: float = _NEVER) -> Verdicts:
        """Ask what is to be asked before a call runs. Each hook sees the input as the one before it left it; whoever stops the call is
        the last to be asked. Raises DEADLINE_EXCEEDED when the time of the call is over before that of a hook."""
        hooks = self.matching(facts.tool, Phase.PRE)
        if not hooks:
            return NOTHING
        context: list[str] = []
        changes: list[Change] = []
        risk: dict[str, int] = {}
        changed, asks_approval = arguments, ""
        for hook in hooks:
            sight = RedactedView.of(changed, facts.tool.input.declared, None if hook.sees_sensitive else facts.scanner)
            answer = await self._ask(hook, facts, {"input": sight.shown}, until, sight)
            if isinstance(answer, MeshError):
                return Verdicts(tuple(context), stop=answer)
            context.extend(answer.context)
            asks_approval = asks_approval or (hook.name if answer.asks_approval else "")
            for name, number in answer.risk:
                # Whoever sees more risk is heard: no hook can talk another one's fact down.
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
        """Ask those who speak for approvers, where a person must decide. Whoever denies has rejected the call; nobody here can approve."""
        context: list[str] = []
        for hook in self.matching(facts.tool, Phase.APPROVAL):
            seen = {"input": self._shown(hook, facts, arguments), "approval": wanted}
            answer = await self._ask(hook, facts, seen, until)
            if isinstance(answer, MeshError):
                return Verdicts(tuple(context), stop=answer)
            context.extend(answer.context)
        return Verdicts(tuple(context))

    async def after(self, facts: Facts, arguments: dict[str, Any], value: Any, *, until: float = _NEVER) -> Verdicts:
        """Ask what is to be asked about a result before its caller gets it. Whoever stops the call withholds the result."""
        context: list[str] = []
        for hook in self.matching(facts.tool, Phase.POST):
            seen = {
                "input": self._shown(hook, facts, arguments),
                "result": RedactedView.of(
                    value, facts.tool.output.declared, None if hook.sees_sensitive else facts.scanner
                ).shown,
            }
            answer = await self._ask(hook, facts, seen, until)
            if isinstance(answer, MeshError):
                return Verdicts(tuple(context), stop=answer)
            context.extend(answer.context)
        return Verdicts(tuple(context))

    async def after_failure(
        self, facts: Facts, arguments: dict[str, Any], error: MeshError, *, until: float = _NEVER
    ) -> Verdicts:
        """Tell those who want to know about failures, and gather what they have to add. The failure stays what it is, whatever becomes
        of the hooks. When the time of the call is over, the rest of them are not told."""
        context: list[str] = []
        for hook in self.matching(facts.tool, Phase.FAILURE):
            scanner = None if hook.sees_sensitive else facts.scanner
            sight = RedactedView.of(arguments, facts.tool.input.declared, scanner)
            # The words may be the tool's, and repeat what was asked of it.
            told = {"code": error.row.code, "reason": error.reason.name, "message": sight.words(error.message, scanner)}
            seen = {"input": sight.shown, "error": told}
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

    def _shown(self, hook: Hook, facts: Facts, arguments: dict[str, Any]) -> Any:
        scanner = None if hook.sees_sensitive else facts.scanner
        return RedactedView.of(arguments, facts.tool.input.declared, scanner).shown

    async def _ask(
        self, hook: Hook, facts: Facts, seen: dict[str, Any], until: float, sight: RedactedView | None = None
    ) -> Answer | MeshError:
        """Return a hook's answer, or why the call ends with it."""
        began = self._clock.monotonic()
        left = until - began
        if left <= 0:
            raise errors.deadline_exceeded()
        event = {**_told(facts), "phase": str(hook.phase), "hook": hook.name, **seen}
        try:
            async with asyncio.timeout(min(hook.timeout, left)):
                answered = await hook.respondent.ask(event)
            answer = _allowed(answer_of(answered, hook.phase), hook, facts.tool, sight)
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


def _allowed(answer: Answer, hook: Hook, tool: Tool, sight: RedactedView | None) -> Answer:
    """Return the answer with the arguments as the tool would get them. Raises HookFailedError for what the hook may not answer."""
    if answer.input is None or sight is None:
        return answer
    if not (hook.may_change_input and tool.hooks_may_change):
        raise HookFailedError("input_not_allowed")
    return answer.with_input(restore_hidden(answer.input, sight))


def _told(facts: Facts) -> dict[str, Any]:
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
