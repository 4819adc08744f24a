"""MoveAlias: points an alias to another tool of the same namespace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from libs.common.runtime.clock import Clock
from libs.common.tool_names import ToolName
from services.registry.domain.errors import (
    alias_leads_elsewhere,
    alias_not_found,
    alias_stays_in_its_namespace,
    namespace_not_found,
    namespace_not_owned,
    tool_not_found,
)
from services.registry.domain.lifecycle.transitions import MOVE_ALIAS, ChangeRequest, Transition
from services.registry.domain.model import Tool, VersionHead
from services.registry.domain.ports import Catalogue, Ledger, Wakeup


async def move_alias(
    alias: str,
    origin: str,
    target: str,
    change_request: ChangeRequest,
    *,
    catalogue: Catalogue,
    wakeup: Wakeup,
    clock: Clock,
) -> Tool:
    """Point the alias to `target` instead of `origin`, and return the target. Every version of both tools gets a
    change, so that watchers update their aliases. Moving it again to the same target changes nothing."""
    word, source, goal = (ToolName.parse(reference) for reference in (alias, origin, target))
    if not word.namespace == source.namespace == goal.namespace:
        raise alias_stays_in_its_namespace(word)
    async with catalogue.writing() as ledger:
        await _require_owner(word, change_request, ledger)
        tools = [await _tool(name, ledger) for name in (source, goal)]
        holder = (await ledger.holders([word])).get(word)
        if holder is None or holder == word:
            raise alias_not_found(word)
        if holder == goal:
            return tools[1]
        if holder != source:
            raise alias_leads_elsewhere(word, holder)
        moved = await _move(word, tools, change_request, ledger, clock.now())
    wakeup.notify()
    return moved


async def _move(
    word: ToolName, tools: Sequence[Tool], change_request: ChangeRequest, ledger: Ledger, now: datetime
) -> Tool:
    source, goal = tools
    await ledger.point_alias(word, goal.name)
    without = tuple(each for each in source.aliases if each != word.tool_id)
    gained = replace(goal, aliases=tuple(sorted({*goal.aliases, word.tool_id})), update_time=now)
    await ledger.put_tool(replace(source, aliases=without, update_time=now))
    await ledger.put_tool(gained)
    for tool in (source, goal):
        for head in await ledger.heads(tool.name):
            await _tell(
                head, f"{word.qualified} -> {goal.name.qualified}: {change_request.reason}", change_request, ledger, now
            )
    return gained


async def _tell(head: VersionHead, reason: str, change_request: ChangeRequest, ledger: Ledger, now: datetime) -> None:
    """Record a change that keeps the state of the version, so that watchers read the new aliases."""
    standing = replace(head.standing, sequence=await ledger.next_sequence(), update_time=now)
    transition = Transition(
        sequence=standing.sequence,
        tool=head.tool,
        version=str(head.version),
        verb=MOVE_ALIAS,
        from_state=standing.state,
        to_state=standing.state,
        actor=change_request.actor.recorded,
        through=change_request.actor.peer,
        reason=reason.removesuffix(": "),
        time=now,
        request_id="",
    )
    await ledger.update_standing(replace(head, standing=standing), transition)


async def _require_owner(word: ToolName, change_request: ChangeRequest, ledger: Ledger) -> None:
    namespace = await ledger.namespace(word.namespace)
    if namespace is None:
        raise namespace_not_found(word.namespace)
    if not namespace.lets_publish(change_request.actor):
        raise namespace_not_owned(namespace.namespace, namespace.owner)


async def _tool(name: ToolName, ledger: Ledger) -> Tool:
    found = await ledger.tool(name)
    if found is None:
        raise tool_not_found(name)
    return found
