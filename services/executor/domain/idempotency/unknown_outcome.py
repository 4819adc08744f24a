"""Uncertain outcomes: the owner of a key fell silent, and nobody knows whether its effect happened. The tool's declared rule decides:
repeat, ask the tool that knows, or leave it to a person. The mesh never guesses.

What this can promise, when an owner that was taken for dead was only stopped and goes on later:

- FAIL: at most one effect, always. Nothing is repeated; what the late owner brings is on record and not answered.
- REPEAT: the effect may happen again, which the tool declares harmless; every caller gets the result of whoever holds the key.
- QUERY_STATUS: one effect as long as the late owner's run has ended when the status is asked. Runs are stopped before their lease
  ends, and none begins without one; only a machine that freezes as a whole in the middle of a run can come too late for that. Whoever
  needs to exclude even this hands the key on, which every run is given, to what finally makes the change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.json.jsonio import dump, parse
from libs.common.runtime.clock import Clock
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Claim, Request, Result, Settled, Source
from services.executor.domain.ports import Claims, ToolView
from services.executor.domain.results.check import Answer
from services.executor.domain.results.size_limits import few_places, few_texts
from services.executor.domain.results.store import UNAVAILABLE
from services.executor.domain.tool import Mutation, Tool, UncertainOutcome

# A call whose owners died this often is what kills them, whatever its rule says about repeating.
MOST_RUNS = 8
_FOREVER = float("inf")


Verify = Callable[[Any], Awaitable[Answer]]


class Overtaken(Exception):  # noqa: N818  (named by what happened, like every refusal here)
    """Somebody else holds the key now, or has said how its call ended."""


@dataclass(frozen=True, slots=True)
class Doubted(Settled):
    """A key that this call now holds after its owner fell silent. Until that is resolved its outcome is what it says: unknown."""

    runs: tuple[str, ...] = ()
    """Every invocation that may have had the effect, the first first."""


def overtaken(tool: Tool, invocation_id: str) -> MeshError:
    """Return what a late owner's caller hears: what everybody hears of the key, or that asking again finds it."""
    return errors.outcome_unknown(invocation_id) if tool.uncertain is UncertainOutcome.FAIL else errors.claim_lost()


class Uncertain:
    """Resolves doubt by the tool's rule. What it decides is kept under the key, so that every later call hears the same."""

    def __init__(
        self, tools: ToolView, call: Callable[[Request], Awaitable[Result]], claims: Claims, clock: Clock
    ) -> None:
        self._tools, self._call, self._claims, self._clock = tools, call, claims, clock

    async def resolve(
        self, invocation: Invocation, tool: Tool, claim: Claim, doubted: Doubted, verify: Verify
    ) -> Settled | None:
        """Return what the doubted call ended in, or None if it had no effect and this call is to run.

        `verify` returns what a call is answered with whose tool just returned a value. Raises SERVICE_UNAVAILABLE when the tool that knows cannot
        be asked now, or another retryable failure: the doubt stays, and the key must be released.
        """
        if len(doubted.runs) >= MOST_RUNS or tool.uncertain is not UncertainOutcome.QUERY_STATUS:
            settled = Settled(doubted.invocation_id, doubted.outcome)
        else:
            found = await self._asked(invocation, tool, doubted, verify)
            if found is None:
                return None
            settled = found
        try:
            await self._claims.settle(claim, settled)
        except Overtaken:
            raise errors.claim_lost() from None
        return settled

    async def _asked(self, invocation: Invocation, tool: Tool, doubted: Doubted, verify: Verify) -> Settled | None:
        try:
            answer = await self._status(invocation, tool, doubted)
        except MeshError as error:
            if error.row.retryable:
                raise errors.status_unavailable(tool.status_tool) from error
            return Settled(doubted.invocation_id, doubted.outcome)
        match parse(answer.content) if answer.content else None:
            case {"happened": False}:
                return None
            case {"happened": True, **told}:
                return await self._happened(invocation, tool, doubted, answer, told.get("result"), verify)
        return Settled(doubted.invocation_id, doubted.outcome)

    async def _status(self, invocation: Invocation, tool: Tool, doubted: Doubted) -> Result:
        """Ask the tool that knows: a call like any other, in the caller's name, within its authority and on record."""
        status = self._tools.resolve(tool.status_tool, "")
        if status.mutation is not Mutation.READ_ONLY:
            # What only asks must not be able to change anything.
            raise errors.status_tool_writes(status.name)
        until = invocation.deadline.run_until
        request = replace(
            invocation.request,
            tool=tool.status_tool,
            version=status.version,
            tool_digest=status.digest,
            # Names of runs and nothing else: what the caller sent may be secret in ways that only the tool's own manifest knows.
            arguments=dump({"idempotency_key": invocation.request.idempotency_key, "invocation_ids": doubted.runs}),
            idempotency_key="",
            native_call_id="",
            preview_token="",
            deadline=None if until == _FOREVER else until,
        )
        return await self._call(request)

    async def _happened(
        self, invocation: Invocation, tool: Tool, doubted: Doubted, status: Result, value: Any, verify: Verify
    ) -> Settled:
        first = doubted.invocation_id
        try:
            answer = await verify(value)
        except MeshError as error:
            if error.row.retryable or error.metadata.get("not_stored") == UNAVAILABLE:
                # It can be asked again, so nothing has to be decided now.
                raise errors.status_unavailable(tool.status_tool) from error
            # It happened, and its result breaks the contract: what the tool itself would have ended in.
            return Settled(first, error)
        result = Result(
            result_id=new_id(),
            invocation_id=first,
            content=answer.content,
            tool_version=tool.name,
            tool_digest=tool.digest,
            source=Source.REPLAY,
            created=self._clock.now(),
            total=0.0,
            phases=(),
            attempts=len(doubted.runs),
            sandbox="",
            trace_id=status.trace_id,
            changed=few_places(invocation.changed),
            context=few_texts(invocation.context),
            deprecation=tool.deprecation,
            evidence=status.evidence,
            replayed=True,
            stored=answer.stored,
            shown=answer.presented,
        )
        return Settled(first, result)
