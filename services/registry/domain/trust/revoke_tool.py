"""RevokeTool and ReinstateTool: quarantine all versions of a tool at once; only the operator can lift it."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.tool_names import ToolName
from services.registry.domain.errors import tool_not_found
from services.registry.domain.lifecycle.change_state import change_all
from services.registry.domain.lifecycle.lifecycle import Verb, is_applicable
from services.registry.domain.lifecycle.transitions import ChangeRequest
from services.registry.domain.model import Tool, VersionHead
from services.registry.domain.ports import Catalogue, Wakeup


def tool_not_revoked(tool: ToolName) -> MeshError:
    return MeshError(Reason.FAILED_PRECONDITION, message="the tool is not revoked", metadata={"tool": tool.qualified})


async def revoke_tool(
    reference: str, change_request: ChangeRequest, *, catalogue: Catalogue, wakeup: Wakeup, clock: Clock
) -> Sequence[VersionHead]:
    """Quarantine every version in one transaction and mark the tool, so that only a reinstatement releases it. Return
    the versions that this call quarantined."""
    tool = await _find_tool(reference, catalogue)
    async with catalogue.writing() as ledger:
        await ledger.revoke(
            tool.name,
            change_request.actor.recorded_name,
            change_request.reason,
            clock.now(),
            await ledger.next_sequence(),
        )
        heads = await ledger.heads(tool.name)
        running = [head for head in heads if is_applicable(Verb.QUARANTINE, head, clock.now())]
        changed = await change_all(running, heads, Verb.QUARANTINE, change_request, ledger, clock) if running else []
    wakeup.notify()
    return changed


async def reinstate_tool(
    reference: str, change_request: ChangeRequest, *, catalogue: Catalogue, wakeup: Wakeup, clock: Clock
) -> Sequence[VersionHead]:
    """Remove the mark and release the versions that the revocation quarantined; return them. Versions that were in
    quarantine before stay there."""
    tool = await _find_tool(reference, catalogue)
    async with catalogue.writing() as ledger:
        since = await ledger.reinstate(tool.name, clock.now())
        if since is None:
            raise tool_not_revoked(tool.name)
        heads = await ledger.heads(tool.name)
        taken = await ledger.versions_changed_by(tool.name, Verb.QUARANTINE.value, since)
        held = [head for head in heads if str(head.version) in taken and is_applicable(Verb.RELEASE, head, clock.now())]
        changed = await change_all(held, heads, Verb.RELEASE, change_request, ledger, clock) if held else []
    wakeup.notify()
    return changed


async def _find_tool(reference: str, catalogue: Catalogue) -> Tool:
    name = ToolName.parse(reference)
    tool = await catalogue.tool(name)
    if tool is None:
        raise tool_not_found(name)
    return tool
