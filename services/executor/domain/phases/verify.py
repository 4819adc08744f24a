"""Verify: what a run brought back keeps the tool's word, in its result and in its effects, and only then becomes real."""

from __future__ import annotations

from typing import Any

from libs.common.json.jsonio import dump
from services.executor.domain import errors
from services.executor.domain.hooks.invocation_hooks import Hooking
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Ran
from services.executor.domain.phases.finish import Closing
from services.executor.domain.phases.preflight import Opening
from services.executor.domain.ports import Claims, Quarantine
from services.executor.domain.results.check import Answer, Examined, examined
from services.executor.domain.results.effects import complaint, merged, violations
from services.executor.domain.results.size_limits import UNDO_BYTES
from services.executor.domain.results.store import Storing
from services.executor.domain.tool import Tool

# How long a caller waits until every executor knows of a tool that broke its word. Here it is out of use at once.
_QUARANTINE_PATIENCE = 2.0


class Verification:
    """Looks at what came back. Whatever it refuses leaves nothing behind."""

    def __init__(
        self,
        opening: Opening,
        closing: Closing,
        hooking: Hooking,
        storing: Storing,
        quarantine: Quarantine,
        claims: Claims,
    ) -> None:
        self._opening, self._closing, self._hooking = opening, closing, hooking
        self._storing, self._quarantine, self._claims = storing, quarantine, claims

    async def __call__(self, invocation: Invocation, tool: Tool, ran: Ran) -> Answer:
        """Return the answer once the effects of the run are real. Raises RESULT_INVALID, RESULT_TOO_LARGE, SANITIZATION_FAILED, HOOK_BLOCKED or
        SIDE_EFFECT_VIOLATION, and then none of them is; PARTIAL_FAILURE when only some could be made real. A caller that leaves meanwhile is noted:
        what became real is known, and has to be said before it goes."""
        if ran.drop is None and ran.keep is None:
            return await self._examined(invocation, tool, ran)
        try:
            answer = await self._examined(invocation, tool, ran)
            if invocation.claim is not None and not self._claims.sure(invocation.claim):
                # Somebody else may have made the same effects real meanwhile.
                raise errors.claim_lost()
        except BaseException:
            if ran.drop is not None:
                await self._closing.stay(ran.drop())
            raise
        invocation.ending = True
        if ran.keep is not None and await self._closing.stay(ran.keep()):
            invocation.leave()
        return answer

    async def _examined(self, invocation: Invocation, tool: Tool, ran: Ran) -> Answer:
        invocation.costs, invocation.undo = ran.costs, ran.undo
        if ran.undo is not None and (size := len(dump(ran.undo))) > UNDO_BYTES:
            # Cut it would undo something else; and nobody would hear of what can only be undone with it.
            raise errors.result_too_large(size, UNDO_BYTES)
        if ran.effects:
            await self._hold_to_word(invocation, tool, ran)
        return await self.answer(invocation, tool, ran.value)

    async def answer(self, invocation: Invocation, tool: Tool, value: Any) -> Answer:
        """Return what a call may be answered with that brought back this value. Raises RESULT_INVALID, RESULT_TOO_LARGE, SANITIZATION_FAILED or
        HOOK_BLOCKED."""
        found = examined(invocation, tool, value, self._opening.scanner(invocation))
        if self._hooking.active:
            await self._hooking.after(invocation, tool, found.value)
        if found.large:
            return await self._stored(invocation, tool, found)
        return Answer(found.content, found.shown, found.presented)

    async def _stored(self, invocation: Invocation, tool: Tool, found: Examined) -> Answer:
        refusal = self._storing.refusal(tool, invocation.arguments, len(found.content))
        if refusal is not None:
            raise refusal
        request = invocation.request
        stored = await self._storing.keep(tool, request.caller, found.content, keyed=bool(request.idempotency_key))
        return Answer(b"", found.shown, found.presented, stored)

    async def _hold_to_word(self, invocation: Invocation, tool: Tool, ran: Ran) -> None:
        """Compare what changed with what the manifest declares. A tool that broke its word is out of use before its caller hears of it."""
        invocation.effects = merged(ran.effects)
        broken = violations(tool, ran.effects)
        if not broken:
            return
        invocation.violations = tuple(broken)
        why = complaint(broken, invocation.invocation_id)
        await self._quarantine.impose(tool, why, invocation.invocation_id, within=_QUARANTINE_PATIENCE)
        raise errors.word_broken(tool.name, len(broken))
