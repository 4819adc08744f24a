"""MoveAlias: points an alias to another tool of the same namespace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from libs.common.runtime.clock import Clock
from libs.common.tool_names import ToolName
from services.registry.domain.errors import (
    alias_not_found,
    alias_outside_namespace,
    alias_points_elsewhere,
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
    alias_name, source, destination = (ToolName.parse(reference) for reference in (alias, origin, target))
    if not alias_name.namespace == source.namespace == destination.namespace:
        raise alias_outside_namespace(alias_name)
    async with catalogue.writing() as ledger:
        await _require_owner(alias_name, change_request, ledger)
        tools = [await _tool(name, ledger) for name in (source, destination)]
        holder = (await ledger.holders([alias_name])).get(alias_name)
        if holder is None or holder == alias_name:
            raise alias_not_found(alias_name)
        if holder == destination:
            return tools[1]
        if holder != source:
            raise alias_points_elsewhere(alias_name, holder)
        moved = await _move(alias_name, tools, change_request, ledger, clock.now())
    wakeup.notify()
    return moved


async def _move(
    alias_name: ToolName, tools: Sequence[Tool], change_request: ChangeRequest, ledger: Ledger, now: datetime
) -> Tool:
    source, goal = tools
    await ledger.point_alias(alias_name, goal.name)
    remaining = tuple(alias for alias in source.aliases if alias != alias_name.tool_id)
    updated = replace(goal, aliases=tuple(sorted({*goal.aliases, alias_name.tool_id})), update_time=now)
    await ledger.put_tool(replace(source, aliases=remaining, update_time=now))
    await ledger.put_tool(updated)
    for tool in (source, goal):
        for head in await ledger.heads(tool.name):
            await _record_alias_change(
                head,
                f"{alias_name.qualified} -> {goal.name.qualified}: {change_request.reason}",
                change_request,
                ledger,
                now,
            )
    return updated


async def _record_alias_change(
    head: VersionHead, reason: str, change_request: ChangeRequest, ledger: Ledger, now: datetime
) -> None:
    """Record a change that keeps the state of the version, so that watchers read the new aliases."""
    standing = replace(head.standing, sequence=await ledger.next_sequence(), update_time=now)
    transition = Transition(
        sequence=standing.sequence,
        tool=head.tool,
        version=str(head.version),
        verb=MOVE_ALIAS,
        from_state=standing.state,
        to_state=standing.state,
        actor=change_request.actor.recorded_name,
        through=change_request.actor.peer,
        reason=reason.removesuffix(": "),
        time=now,
        request_id="",
    )
    await ledger.update_standing(replace(head, standing=standing), transition)


async def _require_owner(alias_name: ToolName, change_request: ChangeRequest, ledger: Ledger) -> None:
    namespace = await ledger.namespace(alias_name.namespace)
    if namespace is None:
        raise namespace_not_found(alias_name.namespace)
    if not namespace.may_publish(change_request.actor):
        raise namespace_not_owned(namespace.namespace, namespace.owner)


async def _tool(name: ToolName, ledger: Ledger) -> Tool:
    tool = await ledger.tool(name)
    if tool is None:
        raise tool_not_found(name)
    return tool
