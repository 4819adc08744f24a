"""Applies lifecycle verbs to versions. The state change, the transition record and the change log entry are one
transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from libs.common.runtime.clock import Clock
from libs.common.tool_names import ToolName, split_version_name
from services.registry.domain.catalog.resolve import effective_state
from services.registry.domain.catalog.tool import default_version, with_standing
from services.registry.domain.errors import (
    etag_mismatch,
    etag_needs_a_version,
    request_id_reused,
    tool_is_revoked,
    tool_not_found,
    verb_not_applicable,
    version_not_found,
)
from services.registry.domain.lifecycle.lifecycle import Verb, apply, is_applicable
from services.registry.domain.lifecycle.transitions import ChangeRequest, Transition
from services.registry.domain.model import Standing, Tool, VersionHead
from services.registry.domain.namespaces.administration import require_administrator
from services.registry.domain.ports import Catalogue, Ledger, Wakeup

Revision = Callable[[VersionHead, Standing, datetime, Ledger], Awaitable[Standing]]


async def keep_standing(head: VersionHead, standing: Standing, now: datetime, ledger: Ledger) -> Standing:
    """Return the standing unchanged."""
    return standing


async def change_version(
    name: str,
    verb: Verb,
    change_request: ChangeRequest,
    *,
    catalogue: Catalogue,
    wakeup: Wakeup,
    clock: Clock,
    revise: Revision = keep_standing,
) -> VersionHead:
    """Apply the verb to one version and return it. `revise` receives the new standing and returns the one to store; it
    may raise. Raises TOOL_VERSION_NOT_FOUND, PERMISSION_DENIED, ETAG_MISMATCH or FAILED_PRECONDITION."""
    tool, number = split_version_name(name)
    async with catalogue.writing() as ledger:
        await require_administrator(tool, change_request.actor, ledger)
        heads = await ledger.heads(tool)
        head = find_version(tool, number, heads)
        if await is_repeated(head, verb, change_request, ledger):
            return head
        if change_request.etag and change_request.etag != head.standing.etag:
            raise etag_mismatch(head)
        if verb is Verb.RELEASE and await ledger.revoked(tool):
            raise tool_is_revoked(tool)
        [changed] = await change_all([head], heads, verb, change_request, ledger, clock, revise)
    wakeup.notify()
    return changed


async def change_tool(
    reference: str, verb: Verb, change_request: ChangeRequest, *, catalogue: Catalogue, wakeup: Wakeup, clock: Clock
) -> Sequence[VersionHead]:
    """Apply the verb to all versions of a tool, or to one version if the reference names one. Versions that the verb
    does not apply to are skipped. Return the changed versions, highest first."""
    if "/versions/" in reference:
        return [await change_version(reference, verb, change_request, catalogue=catalogue, wakeup=wakeup, clock=clock)]
    if change_request.etag:
        raise etag_needs_a_version()
    tool = await catalogue.tool(ToolName.parse(reference))
    if tool is None:
        raise tool_not_found(ToolName.parse(reference))
    async with catalogue.writing() as ledger:
        await require_administrator(tool.name, change_request.actor, ledger)
        if verb is Verb.RELEASE and await ledger.revoked(tool.name):
            raise tool_is_revoked(tool.name)
        heads = sorted(await ledger.heads(tool.name), key=lambda head: head.version, reverse=True)
        done = [head for head in heads if await is_repeated(head, verb, change_request, ledger)]
        if done:
            return done
        now = clock.now()
        applicable = [head for head in heads if is_applicable(verb, head, now)]
        if not applicable:
            raise verb_not_applicable(heads[0], verb, effective_state(heads[0], now))
        changed = await change_all(applicable, heads, verb, change_request, ledger, clock)
    wakeup.notify()
    return changed


async def change_all(
    chosen: Sequence[VersionHead],
    heads: Sequence[VersionHead],
    verb: Verb,
    change_request: ChangeRequest,
    ledger: Ledger,
    clock: Clock,
    revise: Revision = keep_standing,
) -> Sequence[VersionHead]:
    """Apply the verb to some versions of a tool, and update the tool."""
    # Read under the lock, so that later changes do not have earlier times on one machine.
    now = clock.now()
    changed = [await _change(head, verb, change_request, ledger, now, revise) for head in chosen]
    await refresh_tool(changed, heads, ledger, now)
    return changed


async def refresh_tool(
    changed: Sequence[VersionHead], heads: Sequence[VersionHead], ledger: Ledger, now: datetime
) -> Tool:
    """Update the tool after some of its versions changed, and return it."""
    by_name = {head.name: head for head in changed}
    versions = [by_name.get(head.name, head) for head in heads]
    tool = await ledger.tool(changed[0].tool)
    if tool is None:
        raise tool_not_found(changed[0].tool)
    refreshed = with_standing(tool, versions, await ledger.manifest(default_version(versions)), now)
    await ledger.put_tool(refreshed)
    return refreshed


async def _change(
    head: VersionHead, verb: Verb, change_request: ChangeRequest, ledger: Ledger, now: datetime, revise: Revision
) -> VersionHead:
    before = effective_state(head, now)
    standing = await revise(head, apply(verb, head, now), now, ledger)
    sequence = await ledger.next_sequence()
    standing = replace(standing, update_time=now, sequence=sequence, state_reason=change_request.reason)
    changed = replace(head, standing=standing)
    transition = Transition(
        sequence=sequence,
        tool=head.tool,
        version=str(head.version),
        verb=verb.value,
        from_state=before,
        to_state=standing.state,
        actor=change_request.actor.recorded_name,
        through=change_request.actor.peer,
        reason=change_request.reason,
        time=now,
        request_id=change_request.request_id,
    )
    await ledger.update_standing(changed, transition)
    return changed


def find_version(tool: ToolName, number: str, heads: Sequence[VersionHead]) -> VersionHead:
    """Return the version with exactly this number. Raises TOOL_VERSION_NOT_FOUND."""
    for head in heads:
        if str(head.version) == number:
            return head
    raise version_not_found(tool, number)


async def is_repeated(head: VersionHead, verb: Verb, change_request: ChangeRequest, ledger: Ledger) -> bool:
    """Return whether this request was already applied. Raises IDEMPOTENCY_CONFLICT if its id had another verb."""
    if not change_request.request_id:
        return False
    done = await ledger.verb_of(head, change_request.actor.recorded_name, change_request.request_id)
    if done not in (None, verb.value):
        raise request_id_reused(change_request.request_id)
    return done is not None
